#!/usr/bin/env python3
"""Runs a command on another kernel: in a QEMU guest (TCG) that has the host's root, read-only.

    vm.py [--kernel SERIES] [--memory MIB] [--timeout SECONDS] [--folder DIR] -- COMMAND...
    vm.py [--kernel SERIES] --prepare

The exit status is the command's, its output comes as it is written. The status is 77 where QEMU is
not installed or the kernel cannot be fetched, and 125 where the guest did not get to the end of the
command: what its console said last is shown. Whatever happens, QEMU is gone afterwards, and
nothing of the guest is left. --prepare: only sees to it that a guest can be run.
"""
import argparse
import contextlib
import os
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
QEMU = "qemu-system-x86_64"
BUSYBOX = Path("/bin/busybox")
SKIPPED, BROKEN = 77, 125
FETCH_S, BOOT_S = 900, 90
DISK_MIB, SWAP_MIB = 4096, 512
CONSOLE_LINES = 40
# Without the first two a guest may hang for ever, calibrating its clock; without the third it panics
# ("IO-APIC + timer doesn't work") where its host was too busy to let a tick through in time. The
# rest: controllers are on cgroup v2, a panic ends QEMU.
KERNEL_OPTIONS = (
    "tsc_early_khz=2600000 lpj=5200000 no_timer_check cgroup_no_v1=all console=ttyS0 panic=-1 quiet"
    " loglevel=4"
)
# Where the guest has a file system of its own over the host's.
GUESTS_OWN = ("/tmp", "/run", "/var/tmp")


class Unable(Exception):
    """What is missing to run a guest here."""


def kernel_fetch(series):
    """The folder with the kernel; see kernel.sh."""
    ran = subprocess.run([HERE / "kernel.sh", series], stdout=subprocess.PIPE, timeout=FETCH_S)
    if ran.returncode == SKIPPED:
        raise Unable(f"no kernel {series}")
    if ran.returncode != 0:
        sys.exit(f"vm.py: kernel.sh ended with status {ran.returncode}")
    return Path(ran.stdout.decode().strip())


def archive_entry(name, mode, data=b""):
    """One entry of a cpio archive in the new ASCII form, as the kernel reads it."""
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def initramfs(kernel, files):
    """busybox, guest-init.sh, the kernel's modules, and files below /vm by their names."""
    entries = [archive_entry(name, stat.S_IFDIR | 0o755) for name in ("bin", "modules", "vm")]

    def add(name, data, mode=0o644):
        entries.append(archive_entry(name, stat.S_IFREG | mode, data))

    add("bin/busybox", BUSYBOX.read_bytes(), 0o755)
    add("init", (HERE / "guest-init.sh").read_bytes(), 0o755)
    for module in sorted((kernel / "modules").iterdir()):
        add(f"modules/{module.name}", module.read_bytes())
    for name, text in files.items():
        add(f"vm/{name}", text.encode())
    return b"".join(entries) + archive_entry("TRAILER!!!", 0)


def disk_make(path, mib, *command):
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as disk:
        disk.truncate(mib << 20)
    subprocess.run([*command, path], check=True, capture_output=True, timeout=60)


# One thread for both processors: with one for each, one boot of twenty ended in an oops, at an int3
# that the other processor had just put there and taken away again.
ACCELERATOR = "tcg,thread=single"


def qemu_command(folder, kernel, memory_mib, options, talk_fd):
    def disk(name):
        return f"if=virtio,format=raw,cache=unsafe,file={folder / name}"

    return [
        # However this program ends, QEMU ends with it.
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *(QEMU, "-M", "q35", "-accel", ACCELERATOR, "-cpu", "max", "-smp", "2"),
        *("-m", str(memory_mib), "-nodefaults", "-no-user-config", "-display", "none"),
        *("-no-reboot", "-nic", "none", "-serial", f"file:{folder / 'console'}"),
        *("-kernel", kernel / "vmlinuz", "-initrd", folder / "initramfs"),
        *("-append", f"{KERNEL_OPTIONS} {options}".rstrip()),
        *("-drive", disk("disk"), "-drive", disk("swap")),
        *("-device", "virtio-serial-pci"),
        *("-chardev", "file,id=output,path=/dev/stdout"),
        *("-device", "virtserialport,chardev=output,name=output"),
        *("-chardev", f"file,id=status,path={folder / 'status'}"),
        *("-device", "virtserialport,chardev=status,name=status"),
        *("-chardev", f"socket,id=talk,fd={talk_fd}"),
        *("-device", "virtserialport,chardev=talk,name=talk"),
        *("-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"),
        *("-device", "virtio-9p-pci,fsdev=host,mount_tag=host"),
    ]


def output_copy(pipe, output):
    while data := os.read(pipe.fileno(), 65536):
        output.write(data)
        output.flush()


def talk_serve(talk, answer):
    """Answers the guest's lines until QEMU closes its end."""
    with talk, talk.makefile("rwb", buffering=0) as lines:
        try:
            while (line := lines.readline()).endswith(b"\n"):
                talk.sendall(answer(line) + b"\n")
        except OSError:
            pass  # it was killed


def qemu_run(command, timeout_s, output, pass_fd):
    """Runs QEMU to its end; says whether that came in time."""
    qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            pass_fds=[pass_fd])
    os.close(pass_fd)
    copier = threading.Thread(target=output_copy, args=[qemu.stdout, output], daemon=True)
    copier.start()
    try:
        qemu.wait(timeout_s)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        qemu.kill()
        qemu.wait()
        copier.join(10)


def host_folders(folders):
    """Those the guest would not see; one that lies in another comes with that one."""
    hidden = {folder for folder in (Path(folder).resolve() for folder in folders)
              if str(folder).startswith(tuple(f"{own}/" for own in GUESTS_OWN))}
    return sorted(str(folder) for folder in hidden if not hidden & set(folder.parents))


def prepare(series):
    """What it takes to run a guest: the folder with the kernel. May raise Unable."""
    if not shutil.which(QEMU) or not BUSYBOX.exists():
        raise Unable(f"{QEMU} or {BUSYBOX} is not installed")
    return kernel_fetch(series)


class Guest:
    """One guest for one command. `answer` is what answers the lines (bytes) that it writes to
    $VM_TALK; `output` the path where its output goes, standard output if none is given; `options`
    more of the kernel's."""

    def __init__(self, command, kernel, memory_mib=2560, timeout_s=600, boot_s=BOOT_S, folders=(),
                 answer=lambda line: b"", output=None, options=""):
        self.kernel, self.memory_mib, self.limit_s = kernel, memory_mib, timeout_s + boot_s
        self.answer, self.output, self.options = answer, output, options
        self.last_words = ""
        self.files = {
            "environment": f"HOST_FOLDERS={shlex.quote(' '.join(host_folders(folders)))}\n",
            "command": f"cd /tmp && exec {shlex.join(map(str, command))}\n",
        }

    def run(self):
        """The command's exit status, or BROKEN."""
        with tempfile.TemporaryDirectory(prefix="dsec-vm.") as name:
            folder = Path(name)
            (folder / "initramfs").write_bytes(initramfs(self.kernel, self.files))
            disk_make(folder / "disk", DISK_MIB, "mke2fs", "-q", "-F", "-t", "ext4")
            disk_make(folder / "swap", SWAP_MIB, "mkswap")
            in_time = self.boot(folder)
            status = (folder / "status").read_text().strip() if (folder / "status").exists() else ""
            if status.isdigit():
                return int(status)
            self.last_words = "no status" if in_time else f"no end in {self.limit_s} s"
            text = (folder / "console").read_text(errors="replace")
            self.last_words += "".join(f"\n  | {line}" for line in
                                       text.splitlines()[-CONSOLE_LINES:])
            return BROKEN

    def boot(self, folder):
        ours, talk = socket.socketpair()
        server = threading.Thread(target=talk_serve, args=[ours, self.answer], daemon=True)
        server.start()
        fd = talk.detach()
        command = qemu_command(folder, self.kernel, self.memory_mib, self.options, fd)
        with open(self.output, "wb") if self.output else contextlib.nullcontext(
                sys.stdout.buffer) as output:
            in_time = qemu_run(command, self.limit_s, output, fd)
        server.join(10)
        return in_time

    def console(self):
        """After BROKEN: why, and what the guest's console said last."""
        return self.last_words


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", default="6.12", metavar="SERIES")
    parser.add_argument("--memory", default=2560, type=int, metavar="MIB")
    parser.add_argument("--timeout", default=600, type=int, metavar="SECONDS")
    parser.add_argument("--folder", action="append", default=[], metavar="DIR",
                        help="of the host, to be seen although the guest has its own there")
    parser.add_argument("--boot", default=BOOT_S, type=int, metavar="SECONDS",
                        help="on top of --timeout")
    parser.add_argument("--prepare", action="store_true", help="only see whether a guest can be run")
    parser.add_argument("command", nargs="*", metavar="COMMAND")
    options = parser.parse_args()
    if bool(options.command) == options.prepare:
        parser.error("either a command or --prepare")
    try:
        kernel = prepare(options.kernel)
    except Unable as why:
        print(f"skipped: {why}")
        return SKIPPED
    if options.prepare:
        return 0
    guest = Guest(options.command, kernel, options.memory, options.timeout, options.boot,
                  options.folder)
    status = guest.run()
    if status == BROKEN:
        print(f"vm.py: {guest.console()}")
    return status


if __name__ == "__main__":
    sys.exit(main())
