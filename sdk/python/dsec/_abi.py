"""libdsec as ctypes sees it. Written by generate.py from dsec.h: do not edit."""
from __future__ import annotations

import ctypes
import enum
from typing import Any, Callable

DSEC_OK = 0
DSEC_REFUSED = 1
DSEC_INVALID = 2
DSEC_DENIED = 3
DSEC_ABSENT = 4
DSEC_CONFLICT = 5
DSEC_UNSUPPORTED = 6
DSEC_DEADLINE = 7
DSEC_CANCELLED = 8
DSEC_FAILED = 9
DSEC_UNKNOWN = 10
DSEC_LOST = 11


class Code(enum.StrEnum):
    OK = "ok"
    REFUSED = "refused"
    INVALID = "invalid"
    DENIED = "denied"
    ABSENT = "absent"
    CONFLICT = "conflict"
    UNSUPPORTED = "unsupported"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    FAILED = "failed"
    UNKNOWN = "unknown"
    LOST = "lost"


CODES: dict[int, Code] = {
    0: Code.OK,
    1: Code.REFUSED,
    2: Code.INVALID,
    3: Code.DENIED,
    4: Code.ABSENT,
    5: Code.CONFLICT,
    6: Code.UNSUPPORTED,
    7: Code.DEADLINE,
    8: Code.CANCELLED,
    9: Code.FAILED,
    10: Code.UNKNOWN,
    11: Code.LOST,
}

DSEC_BLAME_NONE = 0
DSEC_BLAME_CALLER = 1
DSEC_BLAME_GUEST = 2
DSEC_BLAME_PLATFORM = 3


class Blame(enum.StrEnum):
    NONE = "none"
    CALLER = "caller"
    GUEST = "guest"
    PLATFORM = "platform"


BLAMES: dict[int, Blame] = {
    0: Blame.NONE,
    1: Blame.CALLER,
    2: Blame.GUEST,
    3: Blame.PLATFORM,
}

DSEC_RUNNING = 0
DSEC_EXIT = 1
DSEC_SIGNAL = 2
DSEC_TIMEOUT = 3
DSEC_IDLE_TIMEOUT = 4
DSEC_OOM = 5
DSEC_KILLED = 6
DSEC_NOT_STARTED = 7
DSEC_END_UNKNOWN = 8
DSEC_OUTPUT_LIMIT = 9
DSEC_PHASE_OVER = 10
DSEC_FORK_BOMB = 11


class Reason(enum.StrEnum):
    RUNNING = "running"
    EXIT = "exit"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    IDLE_TIMEOUT = "idle-timeout"
    OOM = "oom"
    KILLED = "killed"
    NOT_STARTED = "not-started"
    END_UNKNOWN = "end-unknown"
    OUTPUT_LIMIT = "output-limit"
    PHASE_OVER = "phase-over"
    FORK_BOMB = "fork-bomb"


REASONS: dict[int, Reason] = {
    0: Reason.RUNNING,
    1: Reason.EXIT,
    2: Reason.SIGNAL,
    3: Reason.TIMEOUT,
    4: Reason.IDLE_TIMEOUT,
    5: Reason.OOM,
    6: Reason.KILLED,
    7: Reason.NOT_STARTED,
    8: Reason.END_UNKNOWN,
    9: Reason.OUTPUT_LIMIT,
    10: Reason.PHASE_OVER,
    11: Reason.FORK_BOMB,
}

DSEC_EV_DONE = 0
DSEC_EV_CREATED = 1
DSEC_EV_STARTED = 2
DSEC_EV_DATA = 3
DSEC_EV_GAP = 4
DSEC_EV_ROW = 5
DSEC_EV_PROGRESS = 6
DSEC_EV_STATE = 7
DSEC_EV_ANOMALY = 8
DSEC_EV_RECONNECTED = 9


class Kind(enum.StrEnum):
    DONE = "done"
    CREATED = "created"
    STARTED = "started"
    DATA = "data"
    GAP = "gap"
    ROW = "row"
    PROGRESS = "progress"
    STATE = "state"
    ANOMALY = "anomaly"
    RECONNECTED = "reconnected"


KINDS: dict[int, Kind] = {
    0: Kind.DONE,
    1: Kind.CREATED,
    2: Kind.STARTED,
    3: Kind.DATA,
    4: Kind.GAP,
    5: Kind.ROW,
    6: Kind.PROGRESS,
    7: Kind.STATE,
    8: Kind.ANOMALY,
    9: Kind.RECONNECTED,
}

DSEC_STATE_CREATING = 1
DSEC_STATE_RUNNING = 2
DSEC_STATE_DESTROYING = 3
DSEC_STATE_QUARANTINED = 4
DSEC_STATE_ENDED = 5


class State(enum.StrEnum):
    CREATING = "creating"
    RUNNING = "running"
    DESTROYING = "destroying"
    QUARANTINED = "quarantined"
    ENDED = "ended"


STATES: dict[int, State] = {
    1: State.CREATING,
    2: State.RUNNING,
    3: State.DESTROYING,
    4: State.QUARANTINED,
    5: State.ENDED,
}

DSEC_CAUSE_NONE = 0
DSEC_CAUSE_DESTROYED = 1
DSEC_CAUSE_TTL = 2
DSEC_CAUSE_IDLE_TTL = 3
DSEC_CAUSE_DISCONNECTED = 4
DSEC_CAUSE_DIED = 5
DSEC_CAUSE_OOM = 6
DSEC_CAUSE_STOPPED = 7
DSEC_CAUSE_CANCELLED = 8
DSEC_CAUSE_FAILED = 9


class Cause(enum.StrEnum):
    NONE = "none"
    DESTROYED = "destroyed"
    TTL = "ttl"
    IDLE_TTL = "idle-ttl"
    DISCONNECTED = "disconnected"
    DIED = "died"
    OOM = "oom"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    FAILED = "failed"


CAUSES: dict[int, Cause] = {
    0: Cause.NONE,
    1: Cause.DESTROYED,
    2: Cause.TTL,
    3: Cause.IDLE_TTL,
    4: Cause.DISCONNECTED,
    5: Cause.DIED,
    6: Cause.OOM,
    7: Cause.STOPPED,
    8: Cause.CANCELLED,
    9: Cause.FAILED,
}

DSEC_TOPIC_CREATING = 1
DSEC_TOPIC_RUNNING = 2
DSEC_TOPIC_DESTROYING = 3
DSEC_TOPIC_QUARANTINED = 4
DSEC_TOPIC_ENDED = 5
DSEC_TOPIC_EXEC_STARTED = 8
DSEC_TOPIC_EXEC_ENDED = 9
DSEC_TOPIC_PHASE = 10
DSEC_TOPIC_THROTTLED = 11
DSEC_TOPIC_UNTHROTTLED = 12
DSEC_TOPIC_IMAGE_IMPORTED = 16
DSEC_TOPIC_IMAGE_REPLACED = 17
DSEC_TOPIC_IMAGE_REMOVED = 18
DSEC_TOPIC_VIOLATION = 32
DSEC_TOPIC_ANOMALY = 33


class Topic(enum.StrEnum):
    CREATING = "creating"
    RUNNING = "running"
    DESTROYING = "destroying"
    QUARANTINED = "quarantined"
    ENDED = "ended"
    EXEC_STARTED = "exec-started"
    EXEC_ENDED = "exec-ended"
    PHASE = "phase"
    THROTTLED = "throttled"
    UNTHROTTLED = "unthrottled"
    IMAGE_IMPORTED = "image-imported"
    IMAGE_REPLACED = "image-replaced"
    IMAGE_REMOVED = "image-removed"
    VIOLATION = "violation"
    ANOMALY = "anomaly"


TOPICS: dict[int, Topic] = {
    1: Topic.CREATING,
    2: Topic.RUNNING,
    3: Topic.DESTROYING,
    4: Topic.QUARANTINED,
    5: Topic.ENDED,
    8: Topic.EXEC_STARTED,
    9: Topic.EXEC_ENDED,
    10: Topic.PHASE,
    11: Topic.THROTTLED,
    12: Topic.UNTHROTTLED,
    16: Topic.IMAGE_IMPORTED,
    17: Topic.IMAGE_REPLACED,
    18: Topic.IMAGE_REMOVED,
    32: Topic.VIOLATION,
    33: Topic.ANOMALY,
}

DSEC_ANOMALY_PROTECTED_WRITE = 0
DSEC_ANOMALY_DANGEROUS_IOCTL = 1
DSEC_ANOMALY_PORT_SCAN = 2
DSEC_ANOMALY_HUNTING = 3
DSEC_ANOMALY_OUTSIDE_PTRACE = 4
DSEC_ANOMALY_OUTSIDE_SIGNAL = 5
DSEC_ANOMALY_SOCKET_PROBING = 6
DSEC_ANOMALY_OFFLINE_SOCKETS = 7
DSEC_ANOMALY_VERIFY_TAMPER = 8
DSEC_ANOMALY_STORM = 9
DSEC_ANOMALY_DNS_TUNNEL = 10
DSEC_ANOMALY_BYTES_PER_DESTINATION = 11
DSEC_ANOMALY_VCS_DIRECT = 12
DSEC_ANOMALY_PROXY_OWN_REPOSITORY = 13
DSEC_ANOMALIES = 14


class Anomaly(enum.StrEnum):
    PROTECTED_WRITE = "protected-write"
    DANGEROUS_IOCTL = "dangerous-ioctl"
    PORT_SCAN = "port-scan"
    HUNTING = "hunting"
    OUTSIDE_PTRACE = "outside-ptrace"
    OUTSIDE_SIGNAL = "outside-signal"
    SOCKET_PROBING = "socket-probing"
    OFFLINE_SOCKETS = "offline-sockets"
    VERIFY_TAMPER = "verify-tamper"
    STORM = "storm"
    DNS_TUNNEL = "dns-tunnel"
    BYTES_PER_DESTINATION = "bytes-per-destination"
    VCS_DIRECT = "vcs-direct"
    PROXY_OWN_REPOSITORY = "proxy-own-repository"


ANOMALYS: dict[int, Anomaly] = {
    0: Anomaly.PROTECTED_WRITE,
    1: Anomaly.DANGEROUS_IOCTL,
    2: Anomaly.PORT_SCAN,
    3: Anomaly.HUNTING,
    4: Anomaly.OUTSIDE_PTRACE,
    5: Anomaly.OUTSIDE_SIGNAL,
    6: Anomaly.SOCKET_PROBING,
    7: Anomaly.OFFLINE_SOCKETS,
    8: Anomaly.VERIFY_TAMPER,
    9: Anomaly.STORM,
    10: Anomaly.DNS_TUNNEL,
    11: Anomaly.BYTES_PER_DESTINATION,
    12: Anomaly.VCS_DIRECT,
    13: Anomaly.PROXY_OWN_REPOSITORY,
}


class Flow(ctypes.Structure):
    address: Any
    port: int
    protocol: int
    reserved: int
    rule: int
    bytes: int
    _fields_ = [
        ("address", ctypes.c_uint8 * 16),
        ("port", ctypes.c_uint16),
        ("protocol", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8),
        ("rule", ctypes.c_uint32),
        ("bytes", ctypes.c_uint64),
    ]


class Egress(ctypes.Structure):
    sent_bytes: int
    connections: int
    refused: int
    dropped: int
    capped: int
    flow_count: int
    reserved: int
    flows: Any
    _fields_ = [
        ("sent_bytes", ctypes.c_uint64),
        ("connections", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
        ("dropped", ctypes.c_uint64),
        ("capped", ctypes.c_uint64),
        ("flow_count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("flows", Flow * 16),
    ]

DSEC_SUBSCRIBE_SO_FAR = 1

DSEC_MISSED_UNSELECTED = 1
DSEC_MISSED_RESET = 2

DSEC_CHANGE_TTL = 1
DSEC_CHANGE_IDLE_TTL = 2
DSEC_CHANGE_ON_TIMEOUT = 4
DSEC_CHANGE_LABELS = 8

DSEC_CREATE_ALLOW_DEGRADED = 1
DSEC_CREATE_FRESH_ROOT = 2
DSEC_CREATE_DESTROY_IF_CANCELLED = 4
DSEC_CREATE_SCHED_IDLE = 8

DSEC_ON_TIMEOUT_DEFAULT = 0
DSEC_ON_TIMEOUT_DESTROY = 1
DSEC_ON_TIMEOUT_PAUSE = 2


class OnTimeout(enum.StrEnum):
    DEFAULT = "default"
    DESTROY = "destroy"
    PAUSE = "pause"


ON_TIMEOUTS: dict[int, OnTimeout] = {
    0: OnTimeout.DEFAULT,
    1: OnTimeout.DESTROY,
    2: OnTimeout.PAUSE,
}

DSEC_NETWORK_DEFAULT = 0
DSEC_NETWORK_NONE = 1
DSEC_NETWORK_PRIVATE = 2
DSEC_NETWORK_EGRESS_UNPOLICED = 3
DSEC_NETWORK_SHARED = 4


class Network(enum.StrEnum):
    DEFAULT = "default"
    NONE = "none"
    PRIVATE = "private"
    EGRESS_UNPOLICED = "egress-unpoliced"
    SHARED = "shared"


NETWORKS: dict[int, Network] = {
    0: Network.DEFAULT,
    1: Network.NONE,
    2: Network.PRIVATE,
    3: Network.EGRESS_UNPOLICED,
    4: Network.SHARED,
}

DSEC_NETWORK_SCOPE_SANDBOX = 0
DSEC_NETWORK_SCOPE_JOB = 1
DSEC_NETWORK_SCOPE_TENANT = 2
DSEC_NETWORK_SCOPE_NODE = 3


class NetworkScope(enum.StrEnum):
    SANDBOX = "sandbox"
    JOB = "job"
    TENANT = "tenant"
    NODE = "node"


NETWORK_SCOPES: dict[int, NetworkScope] = {
    0: NetworkScope.SANDBOX,
    1: NetworkScope.JOB,
    2: NetworkScope.TENANT,
    3: NetworkScope.NODE,
}

DSEC_NETWORK_WHY_ASKED = 0
DSEC_NETWORK_WHY_DEFAULT = 1
DSEC_NETWORK_WHY_OPERATOR = 2
DSEC_NETWORK_WHY_POLICY = 3
DSEC_NETWORK_WHY_NO_PROGRAMS = 4
DSEC_NETWORK_WHY_NO_ABSTRACT = 5


class NetworkWhy(enum.StrEnum):
    ASKED = "asked"
    DEFAULT = "default"
    OPERATOR = "operator"
    POLICY = "policy"
    NO_PROGRAMS = "no-programs"
    NO_ABSTRACT = "no-abstract"


NETWORK_WHYS: dict[int, NetworkWhy] = {
    0: NetworkWhy.ASKED,
    1: NetworkWhy.DEFAULT,
    2: NetworkWhy.OPERATOR,
    3: NetworkWhy.POLICY,
    4: NetworkWhy.NO_PROGRAMS,
    5: NetworkWhy.NO_ABSTRACT,
}

DSEC_RESULT_UNPOLICED = 1

DSEC_PORT_REVOKE = 1

DSEC_DISCONNECT_KEEP = 0
DSEC_DISCONNECT_DESTROY = 1
DSEC_DISCONNECT_PAUSE = 2


class Disconnect(enum.StrEnum):
    KEEP = "keep"
    DESTROY = "destroy"
    PAUSE = "pause"


DISCONNECTS: dict[int, Disconnect] = {
    0: Disconnect.KEEP,
    1: Disconnect.DESTROY,
    2: Disconnect.PAUSE,
}

DSEC_EXEC_CAPTURE = 1
DSEC_EXEC_MERGE = 2
DSEC_EXEC_STREAM = 4
DSEC_EXEC_INPUT_STREAM = 8
DSEC_EXEC_DETACH = 16
DSEC_EXEC_TTY = 32
DSEC_EXEC_IMAGE_COMMAND = 64

DSEC_SIGNAL_ALL = 256
DSEC_SIGNAL_TERMINAL = 512

DSEC_RESOURCE_CPU = 0
DSEC_RESOURCE_FSIZE = 1
DSEC_RESOURCE_DATA = 2
DSEC_RESOURCE_STACK = 3
DSEC_RESOURCE_CORE = 4
DSEC_RESOURCE_RSS = 5
DSEC_RESOURCE_NPROC = 6
DSEC_RESOURCE_NOFILE = 7
DSEC_RESOURCE_MEMLOCK = 8
DSEC_RESOURCE_AS = 9
DSEC_RESOURCE_LOCKS = 10
DSEC_RESOURCE_SIGPENDING = 11
DSEC_RESOURCE_MSGQUEUE = 12
DSEC_RESOURCE_NICE = 13
DSEC_RESOURCE_RTPRIO = 14
DSEC_RESOURCE_RTTIME = 15


class Resource(enum.StrEnum):
    CPU = "cpu"
    FSIZE = "fsize"
    DATA = "data"
    STACK = "stack"
    CORE = "core"
    RSS = "rss"
    NPROC = "nproc"
    NOFILE = "nofile"
    MEMLOCK = "memlock"
    AS = "as"
    LOCKS = "locks"
    SIGPENDING = "sigpending"
    MSGQUEUE = "msgqueue"
    NICE = "nice"
    RTPRIO = "rtprio"
    RTTIME = "rttime"


RESOURCES: dict[int, Resource] = {
    0: Resource.CPU,
    1: Resource.FSIZE,
    2: Resource.DATA,
    3: Resource.STACK,
    4: Resource.CORE,
    5: Resource.RSS,
    6: Resource.NPROC,
    7: Resource.NOFILE,
    8: Resource.MEMLOCK,
    9: Resource.AS,
    10: Resource.LOCKS,
    11: Resource.SIGPENDING,
    12: Resource.MSGQUEUE,
    13: Resource.NICE,
    14: Resource.RTPRIO,
    15: Resource.RTTIME,
}

DSEC_FILE_READ = 1
DSEC_FILE_WRITE = 2
DSEC_FILE_STAT = 3
DSEC_FILE_LIST = 4
DSEC_FILE_MKDIR = 5
DSEC_FILE_REMOVE = 6
DSEC_FILE_RENAME = 7
DSEC_FILE_WATCH = 8

DSEC_FILE_TAR = 1
DSEC_FILE_APPEND = 2
DSEC_FILE_MODE = 4
DSEC_FILE_EXCLUSIVE = 8
DSEC_FILE_PARENTS = 16
DSEC_FILE_RECURSIVE = 32
DSEC_FILE_NO_FOLLOW = 64
DSEC_FILE_NO_LINKS = 128
DSEC_FILE_OWNERS = 256
DSEC_FILE_INPUT = 512

DSEC_FILE_TYPE_OTHER = 0
DSEC_FILE_TYPE_FILE = 1
DSEC_FILE_TYPE_FOLDER = 2
DSEC_FILE_TYPE_LINK = 3
DSEC_FILE_TYPE_FIFO = 4
DSEC_FILE_TYPE_SOCKET = 5
DSEC_FILE_TYPE_CHARACTER = 6
DSEC_FILE_TYPE_BLOCK = 7


class FileType(enum.StrEnum):
    OTHER = "other"
    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    FIFO = "fifo"
    SOCKET = "socket"
    CHARACTER = "character"
    BLOCK = "block"


FILE_TYPES: dict[int, FileType] = {
    0: FileType.OTHER,
    1: FileType.FILE,
    2: FileType.FOLDER,
    3: FileType.LINK,
    4: FileType.FIFO,
    5: FileType.SOCKET,
    6: FileType.CHARACTER,
    7: FileType.BLOCK,
}

DSEC_FILE_CHANGE_CREATED = 1
DSEC_FILE_CHANGE_REMOVED = 2
DSEC_FILE_CHANGE_CONTENT = 4
DSEC_FILE_CHANGE_CLOSED = 8
DSEC_FILE_CHANGE_ATTRIBUTES = 16
DSEC_FILE_CHANGE_LOST = 32
DSEC_FILE_CHANGE_GONE = 64


class FileChange(enum.StrEnum):
    CREATED = "created"
    REMOVED = "removed"
    CONTENT = "content"
    CLOSED = "closed"
    ATTRIBUTES = "attributes"
    LOST = "lost"
    GONE = "gone"


FILE_CHANGES: dict[int, FileChange] = {
    1: FileChange.CREATED,
    2: FileChange.REMOVED,
    4: FileChange.CONTENT,
    8: FileChange.CLOSED,
    16: FileChange.ATTRIBUTES,
    32: FileChange.LOST,
    64: FileChange.GONE,
}

DSEC_FILE_REASON_NONE = 0
DSEC_FILE_REASON_OUTSIDE = 1
DSEC_FILE_REASON_LINK = 2
DSEC_FILE_REASON_SPECIAL = 3
DSEC_FILE_REASON_BITS = 4
DSEC_FILE_REASON_SIZE = 5
DSEC_FILE_REASON_DEEP = 6
DSEC_FILE_REASON_FAILED = 7
DSEC_FILE_REASON_ATTRIBUTES = 8


class FileReason(enum.StrEnum):
    NONE = "none"
    OUTSIDE = "outside"
    LINK = "link"
    SPECIAL = "special"
    BITS = "bits"
    SIZE = "size"
    DEEP = "deep"
    FAILED = "failed"
    ATTRIBUTES = "attributes"


FILE_REASONS: dict[int, FileReason] = {
    0: FileReason.NONE,
    1: FileReason.OUTSIDE,
    2: FileReason.LINK,
    3: FileReason.SPECIAL,
    4: FileReason.BITS,
    5: FileReason.SIZE,
    6: FileReason.DEEP,
    7: FileReason.FAILED,
    8: FileReason.ATTRIBUTES,
}

DSEC_LIMIT_MEMORY = 1
DSEC_LIMIT_PIDS = 2
DSEC_LIMIT_CPU = 4
DSEC_LIMIT_SWAP = 8
DSEC_LIMIT_IO = 16
DSEC_LIMIT_IO_WEIGHT = 32
DSEC_LIMIT_PROCESSES = 64


class Limit(enum.StrEnum):
    MEMORY = "memory"
    PIDS = "pids"
    CPU = "cpu"
    SWAP = "swap"
    IO = "io"
    IO_WEIGHT = "io-weight"
    PROCESSES = "processes"


LIMITS: dict[int, Limit] = {
    1: Limit.MEMORY,
    2: Limit.PIDS,
    4: Limit.CPU,
    8: Limit.SWAP,
    16: Limit.IO,
    32: Limit.IO_WEIGHT,
    64: Limit.PROCESSES,
}

DSEC_ATTACH_SO_FAR = 1

DSEC_LIST_SANDBOXES = 0
DSEC_LIST_EXECS = 1

DSEC_FUNCTION_REGISTER = 1
DSEC_FUNCTION_LIST = 2
DSEC_FUNCTION_REMOVE = 3

DSEC_FUNCTION_ALLOW_DEGRADED = 1
DSEC_FUNCTION_IMAGE_COMMAND = 2

DSEC_ISOLATION_FRESH = 0
DSEC_ISOLATION_DOMAIN = 1


class Isolation(enum.StrEnum):
    FRESH = "fresh"
    DOMAIN = "domain"


ISOLATIONS: dict[int, Isolation] = {
    0: Isolation.FRESH,
    1: Isolation.DOMAIN,
}

DSEC_VERDICT_OK = 1
DSEC_VERDICT_TLE = 2
DSEC_VERDICT_MLE = 3
DSEC_VERDICT_RE = 4
DSEC_VERDICT_OLE = 5
DSEC_VERDICT_IE = 6


class Verdict(enum.StrEnum):
    OK = "ok"
    TLE = "tle"
    MLE = "mle"
    RE = "re"
    OLE = "ole"
    IE = "ie"


VERDICTS: dict[int, Verdict] = {
    1: Verdict.OK,
    2: Verdict.TLE,
    3: Verdict.MLE,
    4: Verdict.RE,
    5: Verdict.OLE,
    6: Verdict.IE,
}

DSEC_IMAGE_IMPORT = 1
DSEC_IMAGE_LIST = 2
DSEC_IMAGE_INSPECT = 3
DSEC_IMAGE_REMOVE = 4
DSEC_IMAGE_COMPOSE = 5
DSEC_IMAGE_GC = 6
DSEC_IMAGE_VERIFY = 7
DSEC_IMAGE_PUSH = 8
DSEC_IMAGE_PULL = 9
DSEC_IMAGE_PACK = 10
DSEC_IMAGE_HOTSET = 11

DSEC_IMAGE_LAYER = 1
DSEC_IMAGE_DRY_RUN = 2
DSEC_IMAGE_ZSTD = 4
DSEC_IMAGE_LAZY = 8
DSEC_IMAGE_FLATTEN = 16
DSEC_IMAGE_KILL = 32

DSEC_IMAGE_AUTO = 0
DSEC_IMAGE_TREE = 1
DSEC_IMAGE_ARCHIVE = 2

DSEC_POLICY_CHECK = 1
DSEC_POLICY_LOAD = 2
DSEC_POLICY_SHOW = 3
DSEC_POLICY_LIST = 4
DSEC_POLICY_REMOVE = 5
DSEC_POLICY_SERVICES = 6

DSEC_POLICY_DOCUMENT_BYTES_MAX = 65536
DSEC_POLICY_NAME_BYTES_MAX = 63

DSEC_POLICY_ITSELF = 1
DSEC_POLICY_RULE = 2
DSEC_POLICY_PHASE = 3
DSEC_POLICY_SERVICE = 4

DSEC_POLICY_BPF_LSM = 1
DSEC_POLICY_APPARMOR = 2
DSEC_POLICY_LANDLOCK = 4
DSEC_POLICY_SECCOMP = 8
DSEC_POLICY_MOUNT = 16
DSEC_POLICY_CGROUP_BPF = 32
DSEC_POLICY_XDP = 64
DSEC_POLICY_NAMESPACE = 128

DSEC_POLICY_READY_MADE = 1
DSEC_POLICY_REQUIRED = 2
DSEC_POLICY_AUDIT = 4
DSEC_POLICY_SERVICES_OLD = 8

DSEC_PHASE_KILL_OLD = 1
DSEC_PHASE_CUT_FLOWS = 2
DSEC_PHASE_ALLOW_DEGRADED = 4

DSEC_PHASE_NAME_BYTES_MAX = 63

DSEC_TRANSPORT_RING = 1
DSEC_TRANSPORT_STREAM = 2


class Transport(enum.StrEnum):
    RING = "ring"
    STREAM = "stream"


TRANSPORTS: dict[int, Transport] = {
    1: Transport.RING,
    2: Transport.STREAM,
}

DSEC_FEATURE_RING = 1
DSEC_FEATURE_STREAM = 2
DSEC_FEATURE_CONTAINER = 4
DSEC_FEATURE_NETWORK_PRIVATE = 8
DSEC_FEATURE_EXIT_EVENTS = 16
DSEC_FEATURE_ABSTRACT_GUARD = 32


class Feature(enum.StrEnum):
    RING = "ring"
    STREAM = "stream"
    CONTAINER = "container"
    NETWORK_PRIVATE = "network-private"
    EXIT_EVENTS = "exit-events"
    ABSTRACT_GUARD = "abstract-guard"


FEATURES: dict[int, Feature] = {
    1: Feature.RING,
    2: Feature.STREAM,
    4: Feature.CONTAINER,
    8: Feature.NETWORK_PRIVATE,
    16: Feature.EXIT_EVENTS,
    32: Feature.ABSTRACT_GUARD,
}


class Id(ctypes.Structure):
    hi: int
    lo: int
    _fields_ = [
        ("hi", ctypes.c_uint64),
        ("lo", ctypes.c_uint64),
    ]


class Bytes(ctypes.Structure):
    data: Any
    bytes: int
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
    ]


class Label(ctypes.Structure):
    key: Bytes
    value: Bytes
    _fields_ = [
        ("key", Bytes),
        ("value", Bytes),
    ]


class Status(ctypes.Structure):
    code: int
    blame: int
    error: int
    retry_after_ms: int
    step: bytes
    detail: bytes
    _fields_ = [
        ("code", ctypes.c_uint32),
        ("blame", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("retry_after_ms", ctypes.c_uint32),
        ("step", ctypes.c_char * 32),
        ("detail", ctypes.c_char * 80),
    ]

DSEC_LAST = 1
DSEC_REPLAYED = 2
DSEC_UNPOLICED = 16


class Event(ctypes.Structure):
    size: int
    kind: int
    flags: int
    ticket: int
    tag: int
    subject: Id
    exec: int
    stream: int
    index: int
    offset: int
    bytes: int
    data: Any
    body: Any
    status: Status
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("kind", ctypes.c_uint16),
        ("flags", ctypes.c_uint16),
        ("ticket", ctypes.c_int64),
        ("tag", ctypes.c_uint64),
        ("subject", Id),
        ("exec", ctypes.c_uint64),
        ("stream", ctypes.c_uint32),
        ("index", ctypes.c_uint32),
        ("offset", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("body", ctypes.c_void_p),
        ("status", Status),
    ]

DSEC_CALL_ONCE = 1


class Call(ctypes.Structure):
    size: int
    timeout_ms: int
    queue: Any
    tag: int
    request_id: Any
    flags: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("timeout_ms", ctypes.c_uint32),
        ("queue", ctypes.c_void_p),
        ("tag", ctypes.c_uint64),
        ("request_id", ctypes.c_uint8 * 16),
        ("flags", ctypes.c_uint64),
    ]


class OpenOpts(ctypes.Structure):
    size: int
    channels: int
    address: Any
    token: Any
    images: Any
    arena_bytes: int
    requests_max: int
    spin_us: int
    reconnect_ms: int
    connect_ms: int
    tenant: Any
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("channels", ctypes.c_uint32),
        ("address", ctypes.c_char_p),
        ("token", ctypes.c_char_p),
        ("images", ctypes.c_char_p),
        ("arena_bytes", ctypes.c_uint64),
        ("requests_max", ctypes.c_uint32),
        ("spin_us", ctypes.c_uint32),
        ("reconnect_ms", ctypes.c_uint32),
        ("connect_ms", ctypes.c_uint32),
        ("tenant", ctypes.c_char_p),
    ]


class Caps(ctypes.Structure):
    size: int
    shards: int
    features: int
    epoch: int
    node: Id
    sandboxes_max: int
    execs_max: int
    requests_max: int
    clients_max: int
    argument_bytes_max: int
    output_bytes_max: int
    backends: int
    unenforced: int
    version: bytes
    kernel: bytes
    transport: int
    channels: int
    tenant: bytes
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("shards", ctypes.c_uint32),
        ("features", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
        ("node", Id),
        ("sandboxes_max", ctypes.c_uint32),
        ("execs_max", ctypes.c_uint32),
        ("requests_max", ctypes.c_uint32),
        ("clients_max", ctypes.c_uint32),
        ("argument_bytes_max", ctypes.c_uint32),
        ("output_bytes_max", ctypes.c_uint32),
        ("backends", ctypes.c_uint64),
        ("unenforced", ctypes.c_uint64),
        ("version", ctypes.c_char * 32),
        ("kernel", ctypes.c_char * 64),
        ("transport", ctypes.c_uint32),
        ("channels", ctypes.c_uint32),
        ("tenant", ctypes.c_char * 32),
    ]


class CreateOpts(ctypes.Structure):
    size: int
    count: int
    image: Any
    policy: Any
    backend: Any
    hostname: Any
    user: Any
    job: Id
    labels: Any
    env: Any
    label_count: int
    env_count: int
    flags: int
    network: int
    memory_bytes: int
    disk_bytes: int
    inodes: int
    pids_max: int
    cpu_weight: int
    cpu_max_permille: int
    ttl_s: int
    idle_ttl_s: int
    on_disconnect: int
    swap_bytes: int
    io_bytes_per_s: int
    io_weight: int
    on_timeout: int
    output_limit_bytes: int
    processes_per_s: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("image", ctypes.c_char_p),
        ("policy", ctypes.c_char_p),
        ("backend", ctypes.c_char_p),
        ("hostname", ctypes.c_char_p),
        ("user", ctypes.c_char_p),
        ("job", Id),
        ("labels", ctypes.POINTER(Label)),
        ("env", ctypes.POINTER(Bytes)),
        ("label_count", ctypes.c_uint32),
        ("env_count", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("network", ctypes.c_uint32),
        ("memory_bytes", ctypes.c_uint64),
        ("disk_bytes", ctypes.c_uint64),
        ("inodes", ctypes.c_uint64),
        ("pids_max", ctypes.c_uint32),
        ("cpu_weight", ctypes.c_uint32),
        ("cpu_max_permille", ctypes.c_uint32),
        ("ttl_s", ctypes.c_uint32),
        ("idle_ttl_s", ctypes.c_uint32),
        ("on_disconnect", ctypes.c_uint32),
        ("swap_bytes", ctypes.c_uint64),
        ("io_bytes_per_s", ctypes.c_uint64),
        ("io_weight", ctypes.c_uint32),
        ("on_timeout", ctypes.c_uint32),
        ("output_limit_bytes", ctypes.c_uint64),
        ("processes_per_s", ctypes.c_uint32),
    ]


class Created(ctypes.Structure):
    size: int
    backend: int
    network: int
    flags: int
    memory_bytes: int
    disk_bytes: int
    inodes: int
    pids_max: int
    ttl_s: int
    idle_ttl_s: int
    on_disconnect: int
    unenforced: int
    reused: int
    swap_bytes: int
    io_bytes_per_s: int
    cpu_weight: int
    cpu_max_permille: int
    io_weight: int
    on_timeout: int
    output_limit_bytes: int
    policy: int
    rules_unenforced: int
    processes_per_s: int
    network_why: int
    network_scope: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("backend", ctypes.c_uint32),
        ("network", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("memory_bytes", ctypes.c_uint64),
        ("disk_bytes", ctypes.c_uint64),
        ("inodes", ctypes.c_uint64),
        ("pids_max", ctypes.c_uint32),
        ("ttl_s", ctypes.c_uint32),
        ("idle_ttl_s", ctypes.c_uint32),
        ("on_disconnect", ctypes.c_uint32),
        ("unenforced", ctypes.c_uint32),
        ("reused", ctypes.c_uint32),
        ("swap_bytes", ctypes.c_uint64),
        ("io_bytes_per_s", ctypes.c_uint64),
        ("cpu_weight", ctypes.c_uint32),
        ("cpu_max_permille", ctypes.c_uint32),
        ("io_weight", ctypes.c_uint32),
        ("on_timeout", ctypes.c_uint32),
        ("output_limit_bytes", ctypes.c_uint64),
        ("policy", ctypes.c_uint32),
        ("rules_unenforced", ctypes.c_uint32),
        ("processes_per_s", ctypes.c_uint32),
        ("network_why", ctypes.c_uint16),
        ("network_scope", ctypes.c_uint16),
    ]


class Select(ctypes.Structure):
    size: int
    count: int
    ids: Any
    job: Id
    labels: Any
    label_count: int
    reserved: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("ids", ctypes.POINTER(Id)),
        ("job", Id),
        ("labels", ctypes.POINTER(Label)),
        ("label_count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class Rlimit(ctypes.Structure):
    resource: int
    reserved: int
    soft: int
    hard: int
    _fields_ = [
        ("resource", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("soft", ctypes.c_uint64),
        ("hard", ctypes.c_uint64),
    ]


class ExecOpts(ctypes.Structure):
    size: int
    flags: int
    argv: Any
    env: Any
    argc: int
    env_count: int
    cwd: Any
    user: Any
    input: Bytes
    timeout_ms: int
    idle_timeout_ms: int
    head_bytes: int
    tail_bytes: int
    rlimits: Any
    rlimit_count: int
    rows: int
    columns: int
    kill_after_ms: int
    reserved: int
    window_bytes: int
    output_limit_bytes: int
    phase: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("argv", ctypes.POINTER(Bytes)),
        ("env", ctypes.POINTER(Bytes)),
        ("argc", ctypes.c_uint32),
        ("env_count", ctypes.c_uint32),
        ("cwd", ctypes.c_char_p),
        ("user", ctypes.c_char_p),
        ("input", Bytes),
        ("timeout_ms", ctypes.c_uint32),
        ("idle_timeout_ms", ctypes.c_uint32),
        ("head_bytes", ctypes.c_uint64),
        ("tail_bytes", ctypes.c_uint64),
        ("rlimits", ctypes.POINTER(Rlimit)),
        ("rlimit_count", ctypes.c_uint32),
        ("rows", ctypes.c_uint16),
        ("columns", ctypes.c_uint16),
        ("kill_after_ms", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("window_bytes", ctypes.c_uint64),
        ("output_limit_bytes", ctypes.c_uint64),
        ("phase", ctypes.c_uint64),
    ]


class Output(ctypes.Structure):
    stream: int
    truncated: int
    total_bytes: int
    head: Bytes
    tail: Bytes
    _fields_ = [
        ("stream", ctypes.c_uint32),
        ("truncated", ctypes.c_uint32),
        ("total_bytes", ctypes.c_uint64),
        ("head", Bytes),
        ("tail", Bytes),
    ]


class Result(ctypes.Structure):
    size: int
    reason: int
    exit_code: int
    signal: int
    exec: int
    cpu_us: int
    wall_us: int
    memory_peak_bytes: int
    outputs: Any
    output_count: int
    tainted: int
    memory_limit_bytes: int
    flags: int
    phase: int
    processes_killed: int
    reserved: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reason", ctypes.c_uint32),
        ("exit_code", ctypes.c_int32),
        ("signal", ctypes.c_int32),
        ("exec", ctypes.c_uint64),
        ("cpu_us", ctypes.c_uint64),
        ("wall_us", ctypes.c_uint64),
        ("memory_peak_bytes", ctypes.c_uint64),
        ("outputs", ctypes.POINTER(Output)),
        ("output_count", ctypes.c_uint32),
        ("tainted", ctypes.c_uint32),
        ("memory_limit_bytes", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("phase", ctypes.c_uint64),
        ("processes_killed", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class At(ctypes.Structure):
    stream: int
    reserved: int
    offset: int
    _fields_ = [
        ("stream", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("offset", ctypes.c_uint64),
    ]


class AttachOpts(ctypes.Structure):
    size: int
    flags: int
    exec: int
    at: Any
    at_count: int
    reserved: int
    window_bytes: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("exec", ctypes.c_uint64),
        ("at", ctypes.POINTER(At)),
        ("at_count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("window_bytes", ctypes.c_uint64),
    ]


class ExecRow(ctypes.Structure):
    size: int
    reason: int
    sandbox: Id
    exec: int
    age_ms: int
    wall_us: int
    exit_code: int
    signal: int
    stdout_bytes: int
    stderr_bytes: int
    argv: Any
    env: Any
    argc: int
    env_count: int
    cwd: Bytes
    user: Bytes
    truncated: int
    reserved: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reason", ctypes.c_uint32),
        ("sandbox", Id),
        ("exec", ctypes.c_uint64),
        ("age_ms", ctypes.c_uint64),
        ("wall_us", ctypes.c_uint64),
        ("exit_code", ctypes.c_int32),
        ("signal", ctypes.c_int32),
        ("stdout_bytes", ctypes.c_uint64),
        ("stderr_bytes", ctypes.c_uint64),
        ("argv", ctypes.POINTER(Bytes)),
        ("env", ctypes.POINTER(Bytes)),
        ("argc", ctypes.c_uint32),
        ("env_count", ctypes.c_uint32),
        ("cwd", Bytes),
        ("user", Bytes),
        ("truncated", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class FileOpts(ctypes.Structure):
    size: int
    verb: int
    flags: int
    mode: int
    path: Bytes
    to: Bytes
    input: Bytes
    offset: int
    bytes_max: int
    user: Any
    limit: int
    reserved: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("verb", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("path", Bytes),
        ("to", Bytes),
        ("input", Bytes),
        ("offset", ctypes.c_uint64),
        ("bytes_max", ctypes.c_uint64),
        ("user", ctypes.c_char_p),
        ("limit", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class FileRow(ctypes.Structure):
    size: int
    type: int
    reason: int
    error: int
    mode: int
    uid: int
    gid: int
    change: int
    links: int
    bytes: int
    disk_bytes: int
    mtime_ns: int
    name: Bytes
    target: Bytes
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("type", ctypes.c_uint32),
        ("reason", ctypes.c_uint32),
        ("error", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("uid", ctypes.c_uint32),
        ("gid", ctypes.c_uint32),
        ("change", ctypes.c_uint32),
        ("links", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("disk_bytes", ctypes.c_uint64),
        ("mtime_ns", ctypes.c_int64),
        ("name", Bytes),
        ("target", Bytes),
    ]


class FileResult(ctypes.Structure):
    size: int
    more: int
    bytes: int
    entries: int
    left_out: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("more", ctypes.c_uint32),
        ("bytes", ctypes.c_uint64),
        ("entries", ctypes.c_uint64),
        ("left_out", ctypes.c_uint64),
    ]


class PortOpts(ctypes.Structure):
    size: int
    flags: int
    port: int
    wait_ms: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("port", ctypes.c_uint32),
        ("wait_ms", ctypes.c_uint32),
    ]


class Forward(ctypes.Structure):
    size: int
    flags: int
    port: int
    family: int
    address: bytes
    token: bytes
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("port", ctypes.c_uint32),
        ("family", ctypes.c_uint32),
        ("address", ctypes.c_char * 64),
        ("token", ctypes.c_char * 64),
    ]


class ListOpts(ctypes.Structure):
    size: int
    limit: int
    after: Id
    labels: Any
    label_count: int
    what: int
    sandbox: Id
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("limit", ctypes.c_uint32),
        ("after", Id),
        ("labels", ctypes.POINTER(Label)),
        ("label_count", ctypes.c_uint32),
        ("what", ctypes.c_uint32),
        ("sandbox", Id),
    ]


class Row(ctypes.Structure):
    size: int
    state: int
    id: Id
    age_ms: int
    idle_ms: int
    ttl_ms: int
    execs_running: int
    network: int
    execs_total: int
    image: Bytes
    labels: Any
    label_count: int
    tainted: int
    tenant: Bytes
    phase: Bytes
    phase_version: int
    fork_of: Id
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
        ("id", Id),
        ("age_ms", ctypes.c_uint64),
        ("idle_ms", ctypes.c_uint64),
        ("ttl_ms", ctypes.c_uint64),
        ("execs_running", ctypes.c_uint32),
        ("network", ctypes.c_uint32),
        ("execs_total", ctypes.c_uint64),
        ("image", Bytes),
        ("labels", ctypes.POINTER(Label)),
        ("label_count", ctypes.c_uint32),
        ("tainted", ctypes.c_uint32),
        ("tenant", Bytes),
        ("phase", Bytes),
        ("phase_version", ctypes.c_uint64),
        ("fork_of", Id),
    ]


class Usage(ctypes.Structure):
    size: int
    processes: int
    id: Id
    cpu_us: int
    memory_bytes: int
    memory_peak_bytes: int
    disk_bytes: int
    inodes: int
    io_read_bytes: int
    io_written_bytes: int
    execs_running: int
    execs_total: int
    network_received_bytes: int
    network_sent_bytes: int
    throttles: int
    throttled_us: int
    egress_connections: int
    egress_refused: int
    egress_dropped: int
    egress_capped: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("processes", ctypes.c_uint32),
        ("id", Id),
        ("cpu_us", ctypes.c_uint64),
        ("memory_bytes", ctypes.c_uint64),
        ("memory_peak_bytes", ctypes.c_uint64),
        ("disk_bytes", ctypes.c_uint64),
        ("inodes", ctypes.c_uint64),
        ("io_read_bytes", ctypes.c_uint64),
        ("io_written_bytes", ctypes.c_uint64),
        ("execs_running", ctypes.c_uint64),
        ("execs_total", ctypes.c_uint64),
        ("network_received_bytes", ctypes.c_uint64),
        ("network_sent_bytes", ctypes.c_uint64),
        ("throttles", ctypes.c_uint64),
        ("throttled_us", ctypes.c_uint64),
        ("egress_connections", ctypes.c_uint64),
        ("egress_refused", ctypes.c_uint64),
        ("egress_dropped", ctypes.c_uint64),
        ("egress_capped", ctypes.c_uint64),
    ]


class ChangeOpts(ctypes.Structure):
    size: int
    set: int
    ttl_s: int
    idle_ttl_s: int
    on_timeout: int
    label_count: int
    removed_count: int
    reserved: int
    labels: Any
    removed: Any
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("set", ctypes.c_uint32),
        ("ttl_s", ctypes.c_uint32),
        ("idle_ttl_s", ctypes.c_uint32),
        ("on_timeout", ctypes.c_uint32),
        ("label_count", ctypes.c_uint32),
        ("removed_count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("labels", ctypes.POINTER(Label)),
        ("removed", ctypes.POINTER(Bytes)),
    ]


class Inspected(ctypes.Structure):
    size: int
    state: int
    id: Id
    cause: int
    processes: int
    age_ms: int
    idle_ms: int
    ttl_ms: int
    ended_ms: int
    execs_running: int
    execs_total: int
    cpu_us: int
    memory_bytes: int
    memory_peak_bytes: int
    disk_bytes: int
    inodes: int
    oom_kills: int
    settings: Created
    image: Bytes
    hostname: Bytes
    user: Bytes
    labels: Any
    label_count: int
    tainted: int
    policy: Bytes
    phase: Bytes
    phase_version: int
    egress: Egress
    fork_of: Id
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
        ("id", Id),
        ("cause", ctypes.c_uint32),
        ("processes", ctypes.c_uint32),
        ("age_ms", ctypes.c_uint64),
        ("idle_ms", ctypes.c_uint64),
        ("ttl_ms", ctypes.c_uint64),
        ("ended_ms", ctypes.c_uint64),
        ("execs_running", ctypes.c_uint64),
        ("execs_total", ctypes.c_uint64),
        ("cpu_us", ctypes.c_uint64),
        ("memory_bytes", ctypes.c_uint64),
        ("memory_peak_bytes", ctypes.c_uint64),
        ("disk_bytes", ctypes.c_uint64),
        ("inodes", ctypes.c_uint64),
        ("oom_kills", ctypes.c_uint64),
        ("settings", Created),
        ("image", Bytes),
        ("hostname", Bytes),
        ("user", Bytes),
        ("labels", ctypes.POINTER(Label)),
        ("label_count", ctypes.c_uint32),
        ("tainted", ctypes.c_uint32),
        ("policy", Bytes),
        ("phase", Bytes),
        ("phase_version", ctypes.c_uint64),
        ("egress", Egress),
        ("fork_of", Id),
    ]


class Holdings(ctypes.Structure):
    size: int
    clients: int
    sandboxes: int
    execs: int
    slots: int
    slots_free: int
    slots_rebuilding: int
    launchers: int
    callbacks: int
    callbacks_over_1ms: int
    callback_max_ns: int
    created_total: int
    reused_total: int
    destroyed_total: int
    refused_total: int
    failed_total: int
    launchers_lost: int
    networks: int
    networks_ending: int
    networks_reused: int
    networks_discarded: int
    forwards: int
    inbounds: int
    tokens_refused: int
    quarantined: int
    slots_quarantined: int
    execs_undying: int
    execs_kept: int
    files: int
    port_waits: int
    imports: int
    sinks: int
    subscriptions: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("clients", ctypes.c_uint32),
        ("sandboxes", ctypes.c_uint64),
        ("execs", ctypes.c_uint64),
        ("slots", ctypes.c_uint64),
        ("slots_free", ctypes.c_uint64),
        ("slots_rebuilding", ctypes.c_uint64),
        ("launchers", ctypes.c_uint64),
        ("callbacks", ctypes.c_uint64),
        ("callbacks_over_1ms", ctypes.c_uint64),
        ("callback_max_ns", ctypes.c_uint64),
        ("created_total", ctypes.c_uint64),
        ("reused_total", ctypes.c_uint64),
        ("destroyed_total", ctypes.c_uint64),
        ("refused_total", ctypes.c_uint64),
        ("failed_total", ctypes.c_uint64),
        ("launchers_lost", ctypes.c_uint64),
        ("networks", ctypes.c_uint64),
        ("networks_ending", ctypes.c_uint64),
        ("networks_reused", ctypes.c_uint64),
        ("networks_discarded", ctypes.c_uint64),
        ("forwards", ctypes.c_uint64),
        ("inbounds", ctypes.c_uint64),
        ("tokens_refused", ctypes.c_uint64),
        ("quarantined", ctypes.c_uint64),
        ("slots_quarantined", ctypes.c_uint64),
        ("execs_undying", ctypes.c_uint64),
        ("execs_kept", ctypes.c_uint64),
        ("files", ctypes.c_uint64),
        ("port_waits", ctypes.c_uint64),
        ("imports", ctypes.c_uint64),
        ("sinks", ctypes.c_uint64),
        ("subscriptions", ctypes.c_uint64),
    ]


class SubscribeOpts(ctypes.Structure):
    size: int
    flags: int
    select: Any
    topics: int
    from_seq: int
    epoch: int
    window: int
    reserved: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("select", ctypes.POINTER(Select)),
        ("topics", ctypes.c_uint64),
        ("from_seq", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
        ("window", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class News(ctypes.Structure):
    size: int
    topic: int
    seq: int
    epoch: int
    time_ms: int
    sandbox: Id
    exec: int
    cause: int
    flags: int
    reason: int
    exit_code: int
    signal: int
    label_count: int
    wall_us: int
    image: Bytes
    labels: Any
    rule: int
    hook: int
    count: int
    argument: int
    verdict: int
    anomaly: int
    error: int
    pid: int
    process: Bytes
    text: Bytes
    phase: Bytes
    phase_version: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("topic", ctypes.c_uint32),
        ("seq", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
        ("time_ms", ctypes.c_uint64),
        ("sandbox", Id),
        ("exec", ctypes.c_uint64),
        ("cause", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("reason", ctypes.c_uint32),
        ("exit_code", ctypes.c_int32),
        ("signal", ctypes.c_int32),
        ("label_count", ctypes.c_uint32),
        ("wall_us", ctypes.c_uint64),
        ("image", Bytes),
        ("labels", ctypes.POINTER(Label)),
        ("rule", ctypes.c_uint32),
        ("hook", ctypes.c_uint32),
        ("count", ctypes.c_uint64),
        ("argument", ctypes.c_uint64),
        ("verdict", ctypes.c_uint32),
        ("anomaly", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("pid", ctypes.c_int32),
        ("process", Bytes),
        ("text", Bytes),
        ("phase", Bytes),
        ("phase_version", ctypes.c_uint64),
    ]


class Missed(ctypes.Structure):
    size: int
    flags: int
    first_seq: int
    next_seq: int
    count: int
    epoch: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("first_seq", ctypes.c_uint64),
        ("next_seq", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
    ]


class FunctionOpts(ctypes.Structure):
    size: int
    verb: int
    id: Id
    name: Any
    image: Any
    cwd: Any
    user: Any
    argv: Any
    env: Any
    argc: int
    env_count: int
    flags: int
    isolation: int
    memory_bytes: int
    disk_bytes: int
    output_bytes: int
    cpu_ms: int
    wall_ms: int
    pids_max: int
    reserved: int
    policy: Any
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("verb", ctypes.c_uint32),
        ("id", Id),
        ("name", ctypes.c_char_p),
        ("image", ctypes.c_char_p),
        ("cwd", ctypes.c_char_p),
        ("user", ctypes.c_char_p),
        ("argv", ctypes.POINTER(Bytes)),
        ("env", ctypes.POINTER(Bytes)),
        ("argc", ctypes.c_uint32),
        ("env_count", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("isolation", ctypes.c_uint32),
        ("memory_bytes", ctypes.c_uint64),
        ("disk_bytes", ctypes.c_uint64),
        ("output_bytes", ctypes.c_uint64),
        ("cpu_ms", ctypes.c_uint32),
        ("wall_ms", ctypes.c_uint32),
        ("pids_max", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("policy", ctypes.c_char_p),
    ]


class FunctionRow(ctypes.Structure):
    size: int
    isolation: int
    id: Id
    memory_bytes: int
    disk_bytes: int
    output_bytes: int
    cpu_ms: int
    wall_ms: int
    pids_max: int
    unenforced: int
    age_ms: int
    name: Bytes
    image: Bytes
    argv: Any
    argc: int
    reserved: int
    policy: Bytes
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("isolation", ctypes.c_uint32),
        ("id", Id),
        ("memory_bytes", ctypes.c_uint64),
        ("disk_bytes", ctypes.c_uint64),
        ("output_bytes", ctypes.c_uint64),
        ("cpu_ms", ctypes.c_uint32),
        ("wall_ms", ctypes.c_uint32),
        ("pids_max", ctypes.c_uint32),
        ("unenforced", ctypes.c_uint32),
        ("age_ms", ctypes.c_uint64),
        ("name", Bytes),
        ("image", Bytes),
        ("argv", ctypes.POINTER(Bytes)),
        ("argc", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("policy", Bytes),
    ]


class Called(ctypes.Structure):
    size: int
    verdict: int
    reason: int
    exit_code: int
    signal: int
    reserved: int
    cpu_us: int
    wall_us: int
    memory_peak_bytes: int
    stdout_bytes: int
    stderr_bytes: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("verdict", ctypes.c_uint32),
        ("reason", ctypes.c_uint32),
        ("exit_code", ctypes.c_int32),
        ("signal", ctypes.c_int32),
        ("reserved", ctypes.c_uint32),
        ("cpu_us", ctypes.c_uint64),
        ("wall_us", ctypes.c_uint64),
        ("memory_peak_bytes", ctypes.c_uint64),
        ("stdout_bytes", ctypes.c_uint64),
        ("stderr_bytes", ctypes.c_uint64),
    ]


class ImageOpts(ctypes.Structure):
    size: int
    verb: int
    source: Any
    name: Any
    layers: Any
    layer_count: int
    flags: int
    tag: Any
    sandbox: Id
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("verb", ctypes.c_uint32),
        ("source", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("layers", ctypes.POINTER(Bytes)),
        ("layer_count", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("tag", ctypes.c_char_p),
        ("sandbox", Id),
    ]


class ImageRow(ctypes.Structure):
    size: int
    users: int
    bytes: int
    content_bytes: int
    files: int
    age_ms: int
    layers: int
    dropped_nodes: int
    dropped_xattrs: int
    reserved: int
    name: Bytes
    digest: Bytes
    created: Bytes
    source: Bytes
    new_bytes: int
    shared_bytes: int
    segment_bytes: int
    local_bytes: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("users", ctypes.c_uint32),
        ("bytes", ctypes.c_uint64),
        ("content_bytes", ctypes.c_uint64),
        ("files", ctypes.c_uint64),
        ("age_ms", ctypes.c_uint64),
        ("layers", ctypes.c_uint32),
        ("dropped_nodes", ctypes.c_uint32),
        ("dropped_xattrs", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("name", Bytes),
        ("digest", Bytes),
        ("created", Bytes),
        ("source", Bytes),
        ("new_bytes", ctypes.c_uint64),
        ("shared_bytes", ctypes.c_uint64),
        ("segment_bytes", ctypes.c_uint64),
        ("local_bytes", ctypes.c_uint64),
    ]


class Progress(ctypes.Structure):
    size: int
    layers: int
    layers_total: int
    reserved: int
    bytes: int
    files: int
    read_bytes: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("layers", ctypes.c_uint32),
        ("layers_total", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("bytes", ctypes.c_uint64),
        ("files", ctypes.c_uint64),
        ("read_bytes", ctypes.c_uint64),
    ]


class Forked(ctypes.Structure):
    size: int
    reserved: int
    paused_us: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("paused_us", ctypes.c_uint64),
    ]


class PolicyOpts(ctypes.Structure):
    size: int
    verb: int
    name: Any
    document: Bytes
    version: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("verb", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("document", Bytes),
        ("version", ctypes.c_uint64),
    ]


class PolicyRow(ctypes.Structure):
    size: int
    what: int
    number: int
    flags: int
    rules: int
    users: int
    levels: int
    reserved: int
    age_ms: int
    document_bytes: int
    name: Bytes
    text: Bytes
    tenant: Bytes
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("what", ctypes.c_uint32),
        ("number", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("rules", ctypes.c_uint32),
        ("users", ctypes.c_uint32),
        ("levels", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("age_ms", ctypes.c_uint64),
        ("document_bytes", ctypes.c_uint64),
        ("name", Bytes),
        ("text", Bytes),
        ("tenant", Bytes),
    ]


class PhaseOpts(ctypes.Structure):
    size: int
    flags: int
    name: Any
    policy: Any
    version: int
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("policy", ctypes.c_char_p),
        ("version", ctypes.c_uint64),
    ]


class Phased(ctypes.Structure):
    size: int
    execs_killed: int
    version: int
    policy: int
    rules_unenforced: int
    flows_cut: int
    reserved: int
    name: Bytes
    policy_name: Bytes
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("execs_killed", ctypes.c_uint32),
        ("version", ctypes.c_uint64),
        ("policy", ctypes.c_uint32),
        ("rules_unenforced", ctypes.c_uint32),
        ("flows_cut", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("name", Bytes),
        ("policy_name", Bytes),
    ]


class FetchedOpts(ctypes.Structure):
    size: int
    reserved: int
    path: Any
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("path", ctypes.c_char_p),
    ]


STRUCTS: dict[str, type[ctypes.Structure]] = {
    "dsec_at": At,
    "dsec_attach_opts": AttachOpts,
    "dsec_bytes": Bytes,
    "dsec_call": Call,
    "dsec_called": Called,
    "dsec_caps": Caps,
    "dsec_change_opts": ChangeOpts,
    "dsec_create_opts": CreateOpts,
    "dsec_created": Created,
    "dsec_egress": Egress,
    "dsec_event": Event,
    "dsec_exec_opts": ExecOpts,
    "dsec_exec_row": ExecRow,
    "dsec_fetched_opts": FetchedOpts,
    "dsec_file_opts": FileOpts,
    "dsec_file_result": FileResult,
    "dsec_file_row": FileRow,
    "dsec_flow": Flow,
    "dsec_forked": Forked,
    "dsec_forward": Forward,
    "dsec_function_opts": FunctionOpts,
    "dsec_function_row": FunctionRow,
    "dsec_holdings": Holdings,
    "dsec_id": Id,
    "dsec_image_opts": ImageOpts,
    "dsec_image_row": ImageRow,
    "dsec_inspected": Inspected,
    "dsec_label": Label,
    "dsec_list_opts": ListOpts,
    "dsec_missed": Missed,
    "dsec_news": News,
    "dsec_open_opts": OpenOpts,
    "dsec_output": Output,
    "dsec_phase_opts": PhaseOpts,
    "dsec_phased": Phased,
    "dsec_policy_opts": PolicyOpts,
    "dsec_policy_row": PolicyRow,
    "dsec_port_opts": PortOpts,
    "dsec_progress": Progress,
    "dsec_result": Result,
    "dsec_rlimit": Rlimit,
    "dsec_row": Row,
    "dsec_select": Select,
    "dsec_status": Status,
    "dsec_subscribe_opts": SubscribeOpts,
    "dsec_usage": Usage,
}

FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "dsec_open": (ctypes.c_int, [ctypes.POINTER(OpenOpts), ctypes.POINTER(ctypes.c_void_p)]),
    "dsec_close": (None, [ctypes.c_void_p]),
    "dsec_capabilities": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]),
    "dsec_queue_new": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]),
    "dsec_queue_fd": (ctypes.c_int, [ctypes.c_void_p]),
    "dsec_queue_poll": (ctypes.c_int, [
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_int,
        ctypes.c_int,
    ]),
    "dsec_event_free": (None, [ctypes.c_void_p]),
    "dsec_queue_wake": (None, [ctypes.c_void_p]),
    "dsec_queue_free": (None, [ctypes.c_void_p]),
    "dsec_wait": (ctypes.c_int, [
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_void_p),
    ]),
    "dsec_cancel": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int64]),
    "dsec_create": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        ctypes.POINTER(CreateOpts),
    ]),
    "dsec_destroy": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        ctypes.POINTER(Select),
    ]),
    "dsec_exec": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        Id,
        ctypes.POINTER(ExecOpts),
    ]),
    "dsec_attach": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        Id,
        ctypes.POINTER(AttachOpts),
    ]),
    "dsec_input": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        ctypes.c_int64,
        ctypes.c_uint64,
        Bytes,
    ]),
    "dsec_signal": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        Id,
        ctypes.c_uint64,
        ctypes.c_int,
    ]),
    "dsec_resize": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        Id,
        ctypes.c_uint64,
        ctypes.c_uint32,
    ]),
    "dsec_read": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        Id,
        ctypes.POINTER(FileOpts),
    ]),
    "dsec_write": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        Id,
        ctypes.POINTER(FileOpts),
    ]),
    "dsec_file": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        Id,
        ctypes.POINTER(FileOpts),
    ]),
    "dsec_port": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        Id,
        ctypes.POINTER(PortOpts),
    ]),
    "dsec_list": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        ctypes.POINTER(ListOpts),
    ]),
    "dsec_stats": (ctypes.c_int64, [ctypes.c_void_p, ctypes.POINTER(Call), ctypes.POINTER(Select)]),
    "dsec_change": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        ctypes.POINTER(Select),
        ctypes.POINTER(ChangeOpts),
    ]),
    "dsec_inspect": (ctypes.c_int64, [ctypes.c_void_p, ctypes.POINTER(Call), Id]),
    "dsec_check": (ctypes.c_int64, [ctypes.c_void_p, ctypes.POINTER(Call)]),
    "dsec_ping": (ctypes.c_int64, [ctypes.c_void_p, ctypes.POINTER(Call)]),
    "dsec_sandbox": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(Id)]),
    "dsec_run": (ctypes.c_int, [
        ctypes.c_void_p,
        Id,
        ctypes.POINTER(ctypes.c_char_p),
        ctypes.c_uint32,
        ctypes.POINTER(ctypes.c_void_p),
    ]),
    "dsec_id_parse": (ctypes.c_int, [ctypes.c_char_p, ctypes.POINTER(Id)]),
    "dsec_id_print": (None, [Id, ctypes.c_char_p]),
    "dsec_error": (ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int64]),
    "dsec_subscribe": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        ctypes.POINTER(SubscribeOpts),
    ]),
    "dsec_function": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        ctypes.POINTER(FunctionOpts),
    ]),
    "dsec_invoke": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        Id,
        ctypes.POINTER(Bytes),
        ctypes.c_uint32,
    ]),
    "dsec_image": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        ctypes.POINTER(ImageOpts),
    ]),
    "dsec_fork": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        Id,
        ctypes.POINTER(CreateOpts),
    ]),
    "dsec_policy": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        ctypes.POINTER(PolicyOpts),
    ]),
    "dsec_phase": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        Id,
        ctypes.POINTER(PhaseOpts),
    ]),
    "dsec_fetched": (ctypes.c_int64, [
        ctypes.c_void_p,
        ctypes.POINTER(Call),
        ctypes.POINTER(Select),
        ctypes.POINTER(FetchedOpts),
    ]),
}


class Library:
    """The functions of a libdsec that was loaded; one that it lacks is in `missing`."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self.missing: set[str] = set()
        for name, (result, arguments) in FUNCTIONS.items():
            try:
                function = getattr(loaded, name)
            except AttributeError:
                self.missing.add(name)
                continue
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    dsec_open: Callable[..., int]
    dsec_close: Callable[..., None]
    dsec_capabilities: Callable[..., int]
    dsec_queue_new: Callable[..., int]
    dsec_queue_fd: Callable[..., int]
    dsec_queue_poll: Callable[..., int]
    dsec_event_free: Callable[..., None]
    dsec_queue_wake: Callable[..., None]
    dsec_queue_free: Callable[..., None]
    dsec_wait: Callable[..., int]
    dsec_cancel: Callable[..., int]
    dsec_create: Callable[..., int]
    dsec_destroy: Callable[..., int]
    dsec_exec: Callable[..., int]
    dsec_attach: Callable[..., int]
    dsec_input: Callable[..., int]
    dsec_signal: Callable[..., int]
    dsec_resize: Callable[..., int]
    dsec_read: Callable[..., int]
    dsec_write: Callable[..., int]
    dsec_file: Callable[..., int]
    dsec_port: Callable[..., int]
    dsec_list: Callable[..., int]
    dsec_stats: Callable[..., int]
    dsec_change: Callable[..., int]
    dsec_inspect: Callable[..., int]
    dsec_check: Callable[..., int]
    dsec_ping: Callable[..., int]
    dsec_sandbox: Callable[..., int]
    dsec_run: Callable[..., int]
    dsec_id_parse: Callable[..., int]
    dsec_id_print: Callable[..., None]
    dsec_error: Callable[..., bytes]
    dsec_subscribe: Callable[..., int]
    dsec_function: Callable[..., int]
    dsec_invoke: Callable[..., int]
    dsec_image: Callable[..., int]
    dsec_fork: Callable[..., int]
    dsec_policy: Callable[..., int]
    dsec_phase: Callable[..., int]
    dsec_fetched: Callable[..., int]
