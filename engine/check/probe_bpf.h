/*
 * Which kinds of BPF the kernel takes. dsecd asks bpf/guard.h (bpf_guard.c), the static dsecd-check
 * has no libbpf and asks the kernel (bpf_direct.c): one of the two is linked.
 */
#pragma once

enum bpf_kind {
	BPF_KIND_BTF,
	BPF_KIND_BPFFS,
	BPF_KIND_TP_BTF,
	BPF_KIND_SOCK_CREATE,
	BPF_KIND_CONNECT_UNIX,
	BPF_KIND_SOCKET_CALLS,
	BPF_KIND_PACKETS,
	BPF_KIND_SOCKET_STATES,
	BPF_KIND_LSM,
	BPF_KIND_FENTRY,
	BPF_KIND_XDP,
	BPF_KIND_COUNT,
};

/* 0 when it is there or loads, else a positive errno. Nothing is attached. */
int bpf_kind_probe(enum bpf_kind kind);
