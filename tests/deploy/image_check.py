#!/usr/bin/env python3
"""Runs the steps of deploy/Dockerfile without Docker, each stage in a Debian root of its own, and asks what comes out for its version.

image_check.py ROOT: as root, with debootstrap; ROOT is an empty or missing folder on a disk with 4 GB to spare. What the network has to be
asked for (packages of Debian and PyPI) is what the image asks for, too. CCACHE_DIR, if set, is the compiler's cache inside as well.
"""
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent


def steps(text):
    """Instructions with their arguments; lines that end in a backslash go on."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        yield line.split(None, 1)


def run(command, **kw):
    print("+", shlex.join(map(str, command)), flush=True)
    subprocess.run(command, check=True, **kw)


class Stage:
    def __init__(self, root, base):
        self.root, self.folder, self.environment, self.entry = root, "/", {}, []
        release = base.split(":", 1)[1].split("-")[0]
        name = {"12": "bookworm", "13": "trixie"}[release]
        run(["debootstrap", "--variant=minbase", name, root, "http://deb.debian.org/debian"])
        # What a container has of its host.
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        for kept in ("usr/local/share/ca-certificates", "etc/ssl/certs"):
            if (Path("/") / kept).is_dir():
                shutil.copytree(Path("/") / kept, root / kept, dirs_exist_ok=True, ignore_dangling_symlinks=True)

    def chroot(self, command):
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                       "DEBIAN_FRONTEND": "noninteractive"}
        environment |= {k: v for k, v in os.environ.items() if k.startswith(("http_proxy", "https_proxy", "PIP_"))}
        mounts = f"mount -t proc proc {self.root}/proc"
        if cache := os.environ.get("CCACHE_DIR"):
            (self.root / "ccache").mkdir(exist_ok=True)
            mounts += f" && mount --bind {shlex.quote(cache)} {self.root}/ccache"
            environment |= {"CCACHE_DIR": "/ccache", "CCACHE_BASEDIR": self.folder, "CCACHE_NOHASHDIR": "1"}
        inside = shlex.join(["chroot", str(self.root), "sh", "-c", f"cd {shlex.quote(self.folder)} && {command}"])
        run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", f"{mounts} && exec {inside}"], env=environment | self.environment)


def main():
    if len(sys.argv) != 2 or os.geteuid() != 0:
        sys.exit(__doc__)
    top = Path(sys.argv[1]).resolve()
    stages, stage = {}, None
    for instruction, rest in steps((SOURCE / "deploy/Dockerfile").read_text(encoding="utf-8")):
        if instruction == "FROM":
            words = rest.split()
            name = words[2] if len(words) == 3 else f"stage{len(stages)}"
            (top / name).mkdir(parents=True)
            stage = stages[name] = Stage(top / name, words[0])
        elif instruction == "WORKDIR":
            stage.folder = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif instruction == "COPY" and rest == ". .":
            listed = subprocess.run(["git", "ls-files", "-z"], cwd=SOURCE, capture_output=True, text=True, check=True).stdout
            for name in filter(None, listed.split("\0")):
                target = stage.root / stage.folder.lstrip("/") / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(SOURCE / name, target, follow_symlinks=False)
        elif instruction == "COPY":
            origin, start, end = rest.split()
            shutil.copytree(stages[origin.removeprefix("--from=")].root / start.lstrip("/"), stage.root / end.lstrip("/"), symlinks=True)
        elif instruction == "RUN":
            stage.chroot(rest)
        elif instruction == "ENV":
            stage.environment |= dict(pair.split("=", 1) for pair in rest.split())
        elif instruction == "ENTRYPOINT":
            stage.entry = json.loads(rest)
        elif instruction not in ("USER", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "CMD"):
            sys.exit(f"image_check: {instruction} is not known here")
    stage.chroot(shlex.join([*stage.entry, "--version"]))
    print("the image's steps run, and the program in it starts")


if __name__ == "__main__":
    main()
