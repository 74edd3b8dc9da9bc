"""`python -m mars.cli`: the same as `mars`."""

from mars.cli import main

if __name__ == "__main__":
    main()
