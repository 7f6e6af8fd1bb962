"""A Slurm of one node on loopback, in a scratch folder, without systemd, cgroups or a database."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Commands of a job step do not see SLURM_CONF (the executor plugin removes it), so the
# configuration must lie where Slurm looks by itself.
SYSTEM_CONF = Path("/etc/slurm/slurm.conf")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel")
# Debian keeps daemons where a user's PATH does not look.
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"

CONF = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/munge.socket
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
MailProg=/bin/true
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_min_interval=200000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
MinJobAge=3600
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=20000 Gres=gpu:1 State=UNKNOWN
PartitionName=cpu Nodes={host} Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes={host} MaxTime=INFINITE State=UP
"""
# A device that every machine has: Slurm hands it out as it would a GPU.
GRES = "AutoDetect=off\nNodeName={host} Name=gpu File=/dev/null\n"


def missing() -> str | None:
    """Say what keeps this machine from running a Slurm of its own; None if nothing does."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (make test-cluster installs them as root)"
    if os.getuid() != 0:
        return "slurmd needs root"
    if SYSTEM_CONF.exists() or SYSTEM_CONF.is_symlink():
        return f"{SYSTEM_CONF} exists: this machine belongs to another Slurm"
    return None


@dataclass(frozen=True)
class Submission:
    """What Slurm knows of one job."""

    id: str
    comment: str
    partition: str
    state: str
    memory: str
    cpus: str
    gres: str
    limit: str


@dataclass
class Slurm:
    """The daemons, as a context; whatever happens inside, nothing of them is left."""

    cpus: int = 4  # pretended
    # munged refuses a socket in a folder that others may not pass, as pytest's are.
    root: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="bindscope-slurm-")))
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> Slurm:
        try:
            self._configure()
            self._start_munge()
            conf = str(self.root / "slurm.conf")
            self._start("slurmctld", "-D", "-f", conf, "-c")
            self._start("slurmd", "-D", "-f", conf, "-c")
            self._wait(lambda: "idle" in self.run("sinfo", "--noheader", "-o", "%T").stdout)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel all jobs and end the daemons, the node's first."""
        if SYSTEM_CONF.is_symlink() and SYSTEM_CONF.readlink() == self.root / "slurm.conf":
            if self.daemons:
                self.run("scancel", "--user=root", "--full", "--signal=KILL", timeout_s=10)
                self.run("scancel", "--user=root", timeout_s=10)
            SYSTEM_CONF.unlink()
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons.clear()
        shutil.rmtree(self.root, ignore_errors=True)

    def _configure(self) -> None:
        self.root.chmod(0o711)
        for folder in ("state", "spool", "log"):
            (self.root / folder).mkdir()
        values = {
            "host": socket.gethostname().partition(".")[0],
            "root": self.root,
            "cpus": self.cpus,
            **dict(zip(("controller", "node"), _free_ports(2), strict=True)),
        }
        (self.root / "slurm.conf").write_text(CONF.format(**values))
        (self.root / "gres.conf").write_text(GRES.format(**values))
        SYSTEM_CONF.parent.mkdir(parents=True, exist_ok=True)
        SYSTEM_CONF.symlink_to(self.root / "slurm.conf")

    def _start_munge(self) -> None:
        folder = self.root / "munge"
        folder.mkdir(mode=0o711)
        folder.chmod(0o711)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self._start(
            "munged",
            "--foreground",
            f"--key-file={key}",
            f"--socket={folder}/munge.socket",
            f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/munged.log",
            f"--seed-file={folder}/munged.seed",
        )
        self._wait(lambda: (folder / "munge.socket").exists())

    def _start(self, program: str, *arguments: str) -> None:
        path = shutil.which(program, path=PATH)
        assert path is not None
        with (self.root / "log" / f"{program}.out").open("wb") as out:
            self.daemons.append(subprocess.Popen([path, *arguments], stdout=out, stderr=out))

    def _wait(self, ready: object, patience_s: float = 60) -> None:
        deadline = time.monotonic() + patience_s
        assert callable(ready)
        while not ready():
            dead = [daemon for daemon in self.daemons if daemon.poll() is not None]
            if dead or time.monotonic() > deadline:
                raise RuntimeError(f"Slurm did not start:\n{self.logs()}")
            time.sleep(0.2)

    def logs(self) -> str:
        """The end of every daemon's log."""
        files = sorted(self.root.glob("log/*")) + sorted(self.root.glob("munge/*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text()[-2000:]}" for file in files)

    def run(
        self, program: str, *arguments: str, timeout_s: float = 30
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands; a failing one is not an error."""
        try:
            return subprocess.run(
                [program, *arguments],
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(program, 124, "", "timed out")

    def submissions(self) -> list[Submission]:
        """All jobs that were submitted, in order, finished ones too."""
        names = (
            "JobID",
            "Comment",
            "Partition",
            "State",
            "MinMemory",
            "NumCPUs",
            "tres-per-job",
            "TimeLimit",
        )
        columns = ",".join(f"{name}:|" for name in names)
        done = self.run("squeue", "--noheader", "--states=all", "--sort=i", f"--Format={columns}")
        rows = [[value.strip() for value in x.split("|")] for x in done.stdout.splitlines()]
        return [Submission(*row[:8]) for row in rows]


def _free_ports(count: int) -> Sequence[int]:
    """Ports that nobody listens on; slurmctld and slurmd need two of their own."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()
