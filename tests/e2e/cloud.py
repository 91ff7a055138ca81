"""A whole AnyChip on this machine for one test: its own data folder and port, driven by the CLI alone."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "anychip"
CACHE = ROOT / "build" / "cache"


class CommandFailed(AssertionError):
    def __init__(self, args: tuple[str, ...], status: int, out: str, err: str) -> None:
        super().__init__(f"anychip {' '.join(args)} -> {status}\n{out}\n{err}")
        self.status, self.out, self.err = status, out, err


def alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until(what: str, condition, timeout_s: float = 30.0, every_s: float = 0.1):
    """The first true value of condition(), or a failure that says what was waited for."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(every_s)


class Cloud:
    def __init__(self, data: pathlib.Path) -> None:
        self.data = data
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("ANYCHIP_")},
            "ANYCHIP_DATA": str(data),
            "ANYCHIP_IMAGE_STORE": str(CACHE / "images"),
            "ANYCHIP_WHEEL_CACHE": str(CACHE / "wheels"),
            "NO_COLOR": "1", "LANG": "C.UTF-8",
        }

    # --- commands -----------------------------------------------------------------------------
    def call(self, *args: str, timeout_s: float = 120, stdin: bytes | None = None, **environment: str):
        done = subprocess.run([str(PROGRAM), *args], capture_output=True, timeout=timeout_s,
                              env={**self.environment, **environment}, input=stdin, cwd=self.data.parent)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def run(self, *args: str, timeout_s: float = 120, **environment: str) -> str:
        status, out, err = self.call(*args, timeout_s=timeout_s, **environment)
        if status != 0:
            raise CommandFailed(args, status, out, err)
        return out

    def json(self, *args: str, timeout_s: float = 120):
        # Before the rest: what follows a "--" belongs to the command that is run.
        return json.loads(self.run(args[0], "-o", "json", *args[1:], timeout_s=timeout_s))

    def up(self, port: int = 0, **environment: str) -> None:
        self.run("up", "--port", str(port), "--pool-gib", "12", timeout_s=180, **environment)

    # --- processes ----------------------------------------------------------------------------
    def pid(self, role: str) -> int:
        return int(json.loads((self.data / role / f"{role}.json").read_text())["pid"])

    def kill(self, role: str, number: int = signal.SIGKILL) -> None:
        pid = self.pid(role)
        os.kill(pid, number)
        wait_until(f"{role} {pid} is gone", lambda: not alive(pid))

    def init_pid(self, instance: str) -> int:
        """The command's process, seen from the host."""
        state = subprocess.run(["runc", "--root", str(self.data / "agent" / "runc"), "state", instance],
                               capture_output=True, check=True).stdout
        return int(json.loads(state)["pid"])

    # --- runs ---------------------------------------------------------------------------------
    def train(self, name: str, *train_args: str, chip: str = "cpu", extra: tuple[str, ...] = ()):
        """Starts the poem template with other arguments for train.py."""
        self.wait_free(chip)
        return self.json("run", "--name", name, "--template", "tang-poem-gpt", "--chip", chip, *extra, "--",
                         "python", "train.py", "--backend", "cpu", *train_args, timeout_s=600)

    def show(self, name: str):
        return self.json("show", name)

    def wait(self, name: str, *what: str, timeout_s: int = 600) -> None:
        self.run("wait", name, *what, "--timeout", str(timeout_s), timeout_s=timeout_s + 30)

    def wait_free(self, chip: str, count: int = 1) -> None:
        """A run that has just ended gives its device back a moment later."""
        def enough():
            return sum(o["count_free"] for o in self.json("offer")["items"] if o["chip"] == chip) >= count
        wait_until(f"{count} {chip} free", enough)

    def curve(self, name: str) -> list:
        return self.json("compare", name)["curve"]

    # --- what may be left ---------------------------------------------------------------------
    def mounts(self) -> list[str]:
        lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
        return [line.split()[4] for line in lines if line.split()[4].startswith(str(self.data) + "/")]

    def loops(self) -> list[str]:
        out = subprocess.run(["losetup", "-l", "-n", "-O", "NAME,BACK-FILE"], capture_output=True, text=True).stdout
        return [line for line in out.splitlines() if str(self.data) + "/" in line]

    def containers(self) -> list[str]:
        state = self.data / "agent" / "runc"
        return sorted(p.name for p in state.iterdir()) if state.is_dir() else []

    def monitors(self) -> list[int]:
        """conmon and container processes that carry this data folder in their command line."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    command = (entry / "cmdline").read_bytes().decode(errors="replace")
                    if str(self.data) in command and re.search(r"conmon|runc", command):
                        found.append(int(entry.name))
        return found

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.run("down", "--all", timeout_s=120)
        shutil.rmtree(self.data.parent, ignore_errors=True)
