"""`make service-check`: the unit of `toolgate systemd`, run by a systemd that is process 1 of namespaces of its own.

Above the files of this machine lies a layer that is thrown away: there the wheel is installed for the system's Python,
the user is made, and the unit is saved, as the unit's first lines say. Then the service is started, called, asked,
told to reload, stopped from answering, ended, and started with a configuration that has a mistake. It needs a wheel in
`dist`, root, systemd's programs, and a kernel with overlayfs and cgroups of version 2; where one of the last three is
missing it says so, and nothing is wrong. Nothing on this machine is changed, but for what lies in a temporary folder
and a control group that is removed, and no network is reached while the service runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DIST = Path(__file__).parents[1] / "dist"
MOST = 60.0  # seconds from the start of the service until its first call is answered
PATIENCE = 600  # seconds for its installation, and again for its run
UNIFIED = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")  # where version 2 is beside version 1, and alone
GROUP = "toolgate-service-check"
AS_USER = (
    "setpriv --reuid toolgate --regid toolgate --clear-groups env HOME=/var/lib/toolgate XDG_STATE_HOME=/var/lib "
    "/opt/toolgate/bin/toolgate"
)

CONFIG = """\
drain = "5s"

[mcpServers.notes]
command = "/opt/toolgate/bin/python"
args = ["-m", "toolgate.demo.notes"]
"""

# Above the machine's own files, in mount namespaces of their own. $1 is the folder, $2 this Python, $3 the wheel.
LAYER = """\
set -e
mount --make-rprivate /
mount -t overlay overlay -o lowerdir=/,upperdir=$1/upper,workdir=$1/work $1/root
cd $1/root
"""

INSTALL = """\
mount --rbind /proc proc; mount --rbind /dev dev
mkdir wheel; cp "$3" wheel/
chroot . /usr/bin/python3 -m venv --without-pip /opt/toolgate
chroot . "$2" -m pip --python /opt/toolgate/bin/python install --quiet "/wheel/$(basename "$3")"
chroot . useradd --system --home-dir /var/lib/toolgate --shell /usr/sbin/nologin toolgate
mkdir -p etc/toolgate; cp "$1/toolgate.toml" etc/toolgate/
chroot . env -i PATH=/usr/bin:/bin HOME=/root /opt/toolgate/bin/toolgate systemd --config /etc/toolgate/toolgate.toml \\
  > etc/systemd/system/toolgate.service
"""

BOOT = """\
cp "$1/steps" steps; chmod 755 steps; echo > etc/machine-id; rm -f etc/fstab; touch etc/fstab
printf '[Service]\\nType=oneshot\\nExecStart=/steps\\n' > etc/systemd/system/steps.service
printf '[Unit]\\nRequires=basic.target steps.service\\nAfter=basic.target\\n' > etc/systemd/system/steps.target
for unit in timesyncd networkd resolved udevd modules-load sysctl remount-fs udev-trigger; do
  ln -sf /dev/null etc/systemd/system/systemd-$unit.service
done
mount -t proc proc proc; mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs sys/fs/cgroup; mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run; mount -t tmpfs tmpfs dev; mkdir dev/pts dev/shm; touch dev/console
for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts; ln -s pts/ptmx dev/ptmx
mkdir before; pivot_root . before; umount -l /before
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
  /lib/systemd/systemd --system --unit=steps.target --log-target=console </dev/null
"""

# Inside. Each step has a line in /told: its name, a tab, what it found.
STEPS = f"""\
#!/bin/bash
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up
tell() {{ printf '%s\\t%s\\n' "$1" "$2" >> /told; }}
shown() {{ systemctl show toolgate --value -p "$1"; }}
tell verify "$(systemd-analyze verify /etc/systemd/system/toolgate.service 2>&1; echo $?)"
tell exposure "$(systemd-analyze security toolgate.service --no-pager | tail -1)"
began=$(($(date +%s%N) / 1000000))
systemctl start toolgate; tell start $?
tell active "$(shown ActiveState)"; tell says "$(shown StatusText)"
before=$(shown MainPID)
{AS_USER} call --config /etc/toolgate/toolgate.toml notes list_notes > /said 2>&1; tell call $?
tell first-call-after "$(($(date +%s%N) / 1000000 - began)) ms"
tell user "$(stat -c %U /proc/$before)"
tell capabilities "$(awk '/CapBnd/ {{print $2}}' /proc/$before/status)"
tell state "$(stat -c '%U %a' /var/lib/toolgate)"
nsenter -t $before -m touch /etc/x 2>/dev/null; tell etc-is-writable $?
nsenter -t $before -m touch /var/lib/toolgate/x; tell state-is-writable $?
{AS_USER} status --config /etc/toolgate/toolgate.toml >> /said 2>&1; tell status $?
sed -i 's/"5s"/"4s"/' /etc/toolgate/toolgate.toml
systemctl reload toolgate; tell reload $?
for each in $(seq 20); do journalctl -u toolgate | grep -q 'configuration reloaded' && break; sleep 0.5; done
tell reloaded "$(journalctl -u toolgate | grep -c 'configuration reloaded')"
kill -STOP $before
for each in $(seq 120); do [ "$(shown NRestarts)" = 1 ] && break; sleep 0.5; done
for each in $(seq 60); do [ "$(shown ActiveState)" = active ] && break; sleep 0.5; done
tell started-again "$(shown NRestarts) $(shown ActiveState)"
systemctl stop toolgate; tell stop "$? $(shown Result)"
tell left "$(pgrep -c -u toolgate)"
sed -i '1s/^/nonsense = 1\\n/' /etc/toolgate/toolgate.toml
systemctl start toolgate 2>/dev/null; tell start-with-a-mistake $?
journalctl -u toolgate --no-pager > /log
tell done 0
systemctl exit 0
"""

EXPECTED = {
    "verify": "0",
    "start": "0",
    "active": "active",
    "says": "serving at http://127.0.0.1:8765/mcp",
    "user": "toolgate",
    "capabilities": "0000000000000000",
    "state": "toolgate 700",
    "etc-is-writable": "1",
    "state-is-writable": "0",
    "call": "0",
    "status": "0",
    "reload": "0",
    "reloaded": "1",
    "started-again": "1 active",
    "stop": "0 success",
    "left": "0",
    "start-with-a-mistake": "1",
    "done": "0",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for each in ("upper", "work", "root"):
            (folder / each).mkdir()
        if lacking := _lacking(folder):
            print(f"not run: this needs {lacking}")
            return
        [wheel] = DIST.glob("*.whl")
        (folder / "toolgate.toml").write_text(CONFIG)
        (folder / "steps").write_text(STEPS)
        began = time.monotonic()
        _run(folder, ["unshare", "--mount"], LAYER + INSTALL, wheel)
        print(f"installed: after {time.monotonic() - began:.1f} s")
        alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "--cgroup"]
        _run(folder, alone, LAYER + BOOT, wheel)
        told = folder / "upper" / "told"
        found = dict(line.split("\t", 1) for line in told.read_text().splitlines()) if told.exists() else {}
        wrong = {step for step, wanted in EXPECTED.items() if found.get(step) != wanted}
        if int(found.get("first-call-after", "0 ms").split()[0]) > MOST * 1000:
            wrong.add("first-call-after")
        for step, value in found.items():
            print(f"{step}: {value}{'  <- wrong' if step in wrong else ''}")
        if wrong:
            for name in ("said", "log"):
                print((folder / "upper" / name).read_text() if (folder / "upper" / name).exists() else "")
            sys.exit(f"wrong or missing: {', '.join(sorted(wrong))}")


def _lacking(folder: Path) -> str:
    if os.geteuid():
        return "root"
    if not (shutil.which("systemd-analyze") and os.path.exists("/lib/systemd/systemd")):
        return "systemd's programs on this machine"
    if not _group():
        return "cgroups of version 2"
    tried = subprocess.run(["unshare", "--mount", "bash", "-c", LAYER, "bash", str(folder)], capture_output=True)
    return "a kernel that mounts overlayfs in a namespace of its own" if tried.returncode else ""


def _run(folder: Path, namespaces: list[str], script: str, wheel: Path) -> None:
    command = [*namespaces, "bash", "-c", script, "bash", str(folder), sys.executable, str(wheel)]
    with open(folder / "output", "w+") as output, open(os.devnull) as nothing:
        run = subprocess.Popen(command, stdin=nothing, stdout=output, stderr=output, preexec_fn=_in_a_group)
        try:
            code: int | str = run.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            run.kill()
            code = f"none within {PATIENCE} s"
        finally:
            _remove_group()
        if code:
            output.seek(0)
            sys.exit(f"it could not be run here ({code}):\n{output.read()[-4000:]}")


def _in_a_group() -> None:
    group = _group()
    os.makedirs(group, exist_ok=True)
    Path(group, "cgroup.procs").write_text(str(os.getpid()))


def _remove_group() -> None:
    """With those that systemd has made in it, once what was in them has ended."""
    for _ in range(50):
        for folder, _, _ in os.walk(_group(), topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        if not os.path.exists(_group()):
            return
        time.sleep(0.1)


def _group() -> str:
    """A control group of its own; empty where there are none of version 2."""
    return next((f"{root}/{GROUP}" for root in UNIFIED if os.path.exists(f"{root}/cgroup.procs")), "")


if __name__ == "__main__":
    main()
