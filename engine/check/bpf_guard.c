/* The answer of bpf/guard.h to the probes of BPF. Linked into dsecd. Stateless. */
#include <errno.h>

#include "bpf/guard.h"
#include "engine/check/probe_bpf.h"

int bpf_kind_probe(enum bpf_kind kind)
{
	static const enum guard_feature features[BPF_KIND_COUNT] = {
		[BPF_KIND_BTF] = GUARD_FEATURE_BTF,
		[BPF_KIND_BPFFS] = GUARD_FEATURE_BPFFS,
		[BPF_KIND_TP_BTF] = GUARD_FEATURE_TP_BTF,
		[BPF_KIND_SOCK_CREATE] = GUARD_FEATURE_SOCK_CREATE,
		[BPF_KIND_CONNECT_UNIX] = GUARD_FEATURE_CONNECT_UNIX,
		[BPF_KIND_SOCKET_CALLS] = GUARD_FEATURE_SOCKET_CALLS,
		[BPF_KIND_PACKETS] = GUARD_FEATURE_PACKETS,
		[BPF_KIND_SOCKET_STATES] = GUARD_FEATURE_SOCKET_STATES,
		[BPF_KIND_LSM] = GUARD_FEATURE_LSM,
		[BPF_KIND_FENTRY] = GUARD_FEATURE_FENTRY,
		[BPF_KIND_XDP] = GUARD_FEATURE_XDP,
	};
	struct guard_probe probe;
	int r;

	r = guard_probe(&probe);
	return r < 0 ? -r : probe.features[features[kind]].error;
}
