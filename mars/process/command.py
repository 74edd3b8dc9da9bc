"""`python -m mapper --config FILE`: the command line that all processes share."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mars.core.errors import SettingsError
from mars.core.settings import Settings, load


def settings_from_command_line(role: str) -> Settings:
    """The settings that the arguments and the environment name; exits with 2 if they are wrong."""
    return settings_of(parser_of(role).parse_args())


def parser_of(role: str) -> argparse.ArgumentParser:
    """The arguments that all processes take; a role may add its own."""
    parser = argparse.ArgumentParser(prog=f"python -m {role}")
    parser.add_argument("--config", type=Path, help="TOML file; without it, defaults")
    return parser


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings that parsed arguments and the environment name; exits with 2 if wrong."""
    try:
        return load(arguments.config)
    except SettingsError as problem:
        sys.stderr.write(f"{problem}\n")
        raise SystemExit(2) from problem
