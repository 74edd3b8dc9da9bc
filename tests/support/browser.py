"""A headless Chromium that tests drive by the WebDriver protocol, with nothing but an HTTP client.

https://www.w3.org/TR/webdriver2/ ; `goog/cdp/execute` is Chromium's own.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import httpx

from mars.local.network import free_port

WAIT_S = 30.0
"""For what a page shows in a moment, on a machine that does other things too."""

LOOK_S = 0.05

START_S = 60.0

PHONE_WIDTH = 360

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""What the protocol calls a reference to an element."""

TAB, ENTER, ESCAPE, SPACE = "\ue004", "\ue007", "\ue00c", " "
SHIFT, CONTROL, RELEASE = "\ue008", "\ue009", "\ue000"


def missing_browser() -> str | None:
    """What keeps the browser tests from running."""
    if _chromium() is None or shutil.which("chromedriver") is None:
        return (
            "There is no Chromium with its driver; on Debian and Ubuntu: "
            "apt-get install chromium chromium-driver."
        )
    return None


def _chromium() -> str | None:
    return next(
        (found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None
    )


class Browser:
    """One browser with one page."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={self._port}", f"--log-path={folder / 'driver.log'}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self._port}", timeout=START_S)
        try:
            self._await_driver()
            self._session = self._open(folder)
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _await_driver(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                if self._http.get("/status").json()["value"]["ready"]:
                    return
            except httpx.TransportError:
                assert time.monotonic() < deadline, "chromedriver does not answer"
            time.sleep(LOOK_S)

    def _open(self, folder: Path) -> str:
        options = {
            "binary": _chromium(),
            "args": [
                "--headless=new",
                "--no-sandbox",  # containers run tests as root
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                f"--user-data-dir={folder / 'profile'}",
                "--window-size=1280,900",
            ],
        }
        wanted = {
            "alwaysMatch": {
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL"},
            }
        }
        answer = self._http.post("/session", json={"capabilities": wanted})
        assert answer.is_success, answer.text
        return str(answer.json()["value"]["sessionId"])

    def close(self) -> None:
        """End the browser."""
        self._http.delete(f"/session/{self._session}")
        self._end()

    def _end(self) -> None:
        self._http.close()
        self._driver.terminate()
        self._driver.wait(START_S)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        content = None if method == "GET" else json.dumps(body or {})
        answer = self._http.request(method, f"/session/{self._session}{path}", content=content)
        value = answer.json()["value"]
        assert answer.is_success, value["message"]
        return value

    # ------------------------------------------------------------------------------- looking

    def go(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        self._ask("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """The value that JavaScript returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, css: str = "main") -> str:
        """What a person sees of the first such element; nothing if there is none."""
        found = self.run("return document.querySelector(arguments[0])?.innerText ?? ''", css)
        return str(found)

    def until(self, script: str, *arguments: object, seconds: float = WAIT_S) -> Any:
        """Wait until JavaScript returns something that is true, and return it."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.run(script, *arguments)
            if found:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {seconds} s for {script} {arguments}\n{self.text()}")
            time.sleep(LOOK_S)

    def until_text(self, wanted: str, css: str = "main", seconds: float = WAIT_S) -> None:
        """Wait until the element shows a text."""
        script = (
            "return (document.querySelector(arguments[0])?.innerText ?? '').includes(arguments[1])"
        )
        self.until(script, css, wanted, seconds=seconds)

    def complaints(self) -> list[str]:
        """Errors in the console since the last call: also what the page was not allowed to load."""
        entries = self._ask("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    # -------------------------------------------------------------------------------- acting

    def _element(self, css: str) -> str:
        self.until("return Boolean(document.querySelector(arguments[0]))", css)
        found = self._ask("POST", "/element", {"using": "css selector", "value": css})
        return str(found[ELEMENT])

    def click(self, css: str) -> None:
        """Click the middle of an element; fails where something lies above it."""
        self._ask("POST", f"/element/{self._element(css)}/click")

    def click_text(self, text: str, css: str = "button, a") -> None:
        """Click the button or link that says so."""
        self.until(_FIND + "return Boolean(found)", css, text)
        found = self.run(_FIND + "return found", css, text)
        self._ask("POST", f"/element/{found[ELEMENT]}/click")

    def type(self, css: str, text: str) -> None:
        """Put a text in the place of a field's own, as a person does."""
        element = self._element(css)
        self._ask("POST", f"/element/{element}/clear")
        self._ask("POST", f"/element/{element}/value", {"text": text})

    def choose(self, css: str, option: str) -> None:
        """Choose an option of a select by its text."""
        self._element(css)
        self.run(
            "const list = document.querySelector(arguments[0]);"
            "list.value = [...list.options].find((one) => one.text === arguments[1]).value;"
            "list.dispatchEvent(new Event('change', {bubbles: true}));"
            "list.dispatchEvent(new Event('input', {bubbles: true}))",
            css,
            option,
        )

    def press(self, keys: str) -> None:
        """Type on the keyboard, wherever the focus is."""
        self._ask("POST", "/element/" + self._focused() + "/value", {"text": keys})

    def _focused(self) -> str:
        return str(self._ask("GET", "/element/active")[ELEMENT])

    def focus(self) -> str:
        """What has the focus: its text, label or id."""
        return str(
            self.run(
                "const at = document.activeElement;"
                "return at.getAttribute('aria-label') || at.id || at.innerText || at.tagName"
            )
        )

    # -------------------------------------------------------------------------- how it looks

    def _devtools(self, command: str, **parameters: object) -> Any:
        body = {"cmd": command, "params": parameters}
        return self._ask("POST", "/goog/cdp/execute", body)

    def scheme(self, dark: bool) -> None:
        """What the reader's system prefers."""
        value = "dark" if dark else "light"
        features = [{"name": "prefers-color-scheme", "value": value}]
        self._devtools("Emulation.setEmulatedMedia", features=features)

    def size(self, width: int, height: int = 900) -> None:
        """The size of the page's window."""
        self._devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width <= PHONE_WIDTH,
        )

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """The page as a PNG; `whole` with what one must scroll to see."""
        found = self._devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


_FIND = (
    "const found = [...document.querySelectorAll(arguments[0])]"
    ".find((one) => one.innerText.trim() === arguments[1] && one.offsetParent !== null);"
)
