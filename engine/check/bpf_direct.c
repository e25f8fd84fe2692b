/*
 * Loads tiny BPF programs by bpf(2) alone, for the static dsecd-check. What a program is to be
 * attached to is looked up in the kernel's type information, which is read as a hostile file would
 * be: every offset is checked against its end.
 */
#include "engine/check/probe_bpf.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "engine/base/cleanup.h"

#define BTF_PATH "/sys/kernel/btf/vmlinux"

enum { CGROUP_UNIX_CONNECT = 49 }; /* BPF_CGROUP_UNIX_CONNECT: not in the headers of Debian 12 */

struct program_kind {
	uint32_t type, attach_type;
	uint32_t target_kind; /* BTF_KIND_* of `target` */
	const char *target;   /* NULL: attached to nothing by name */
};

static const struct program_kind kinds[BPF_KIND_COUNT] = {
	[BPF_KIND_TP_BTF] = { BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP, BTF_KIND_TYPEDEF,
			      "btf_trace_sched_process_exit" },
	[BPF_KIND_SOCK_CREATE] = { BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE, 0,
				   NULL },
	[BPF_KIND_CONNECT_UNIX] = { BPF_PROG_TYPE_CGROUP_SOCK_ADDR, CGROUP_UNIX_CONNECT, 0, NULL },
	[BPF_KIND_SOCKET_CALLS] = { BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_BIND, 0,
				    NULL },
	[BPF_KIND_PACKETS] = { BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS, 0, NULL },
	[BPF_KIND_SOCKET_STATES] = { BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP, BTF_KIND_TYPEDEF,
				     "btf_trace_inet_sock_set_state" },
	[BPF_KIND_LSM] = { BPF_PROG_TYPE_LSM, BPF_LSM_MAC, BTF_KIND_FUNC, "bpf_lsm_file_open" },
	[BPF_KIND_FENTRY] = { BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY, BTF_KIND_FUNC, "vfs_open" },
	[BPF_KIND_XDP] = { BPF_PROG_TYPE_XDP, BPF_XDP, 0, NULL },
};

static int target_find(const struct program_kind *kind, uint32_t *ret_id);

static int program_probe(const struct program_kind *kind)
{
	/* r0 = 0; exit: what every kind may return. */
	static const struct bpf_insn code[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attributes = {
		.prog_type = kind->type,
		.expected_attach_type = kind->attach_type,
		.insn_cnt = sizeof(code) / sizeof(code[0]),
		.insns = (uintptr_t)code,
		.license = (uintptr_t) "GPL",
	};
	uint32_t id = 0;
	long fd;
	int r;

	if (kind->target) {
		r = target_find(kind, &id);
		if (r < 0)
			return -r;
		attributes.attach_btf_id = id;
	}
	fd = syscall(SYS_bpf, BPF_PROG_LOAD, &attributes, sizeof(attributes));
	if (fd < 0)
		return errno;
	(void)close((int)fd); /* never attached */
	return 0;
}

int bpf_kind_probe(enum bpf_kind kind)
{
	struct statfs info;

	switch (kind) {
	case BPF_KIND_BTF:
		return access(BTF_PATH, R_OK) < 0 ? errno : 0;
	case BPF_KIND_BPFFS:
		if (statfs("/sys/fs/bpf", &info) < 0)
			return errno;
		return info.f_type == BPF_FS_MAGIC ? 0 : ENODEV;
	default:
		return program_probe(&kinds[kind]);
	}
}

/* The bytes that follow a type's header; SIZE_MAX for a kind that is not known. */
static size_t type_tail(const struct btf_type *type)
{
	uint32_t count = BTF_INFO_VLEN(type->info);

	switch (BTF_INFO_KIND(type->info)) {
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FLOAT:
	case BTF_KIND_TYPE_TAG:
		return 0;
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		return sizeof(uint32_t);
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return count * sizeof(struct btf_member);
	case BTF_KIND_ENUM:
		return count * sizeof(struct btf_enum);
	case BTF_KIND_ENUM64:
		return count * 3 * sizeof(uint32_t);
	case BTF_KIND_FUNC_PROTO:
		return count * sizeof(struct btf_param);
	case BTF_KIND_DATASEC:
		return count * sizeof(struct btf_var_secinfo);
	default:
		return SIZE_MAX;
	}
}

static int btf_search(const uint8_t *data, size_t bytes, const struct program_kind *kind,
		      uint32_t *ret_id)
{
	struct btf_header header;
	size_t at, end, names;

	if (bytes < sizeof(header))
		return -EINVAL;
	memcpy(&header, data, sizeof(header));
	at = (size_t)header.hdr_len + header.type_off;
	end = at + header.type_len;
	names = (size_t)header.hdr_len + header.str_off;
	if (header.magic != BTF_MAGIC || end > bytes || names + header.str_len > bytes ||
	    header.str_len == 0 || data[names + header.str_len - 1] != '\0')
		return -EINVAL;
	for (uint32_t id = 1; end - at >= sizeof(struct btf_type); id++) {
		struct btf_type type;
		size_t tail;

		memcpy(&type, data + at, sizeof(type));
		if (BTF_INFO_KIND(type.info) == kind->target_kind &&
		    type.name_off < header.str_len &&
		    !strcmp((const char *)data + names + type.name_off, kind->target)) {
			*ret_id = id;
			return 0;
		}
		tail = type_tail(&type);
		if (tail > end - at - sizeof(type))
			return -EINVAL;
		at += sizeof(type) + tail;
	}
	return -ENOENT;
}

static int target_find(const struct program_kind *kind, uint32_t *ret_id)
{
	auto_close int fd = open(BTF_PATH, O_RDONLY | O_CLOEXEC);
	auto_free uint8_t *data = NULL;
	struct stat info;
	size_t have = 0;

	if (fd < 0 || fstat(fd, &info) < 0)
		return -errno;
	data = malloc((size_t)info.st_size + 1);
	if (!data)
		return -ENOMEM;
	while (have < (size_t)info.st_size) {
		ssize_t n = read(fd, data + have, (size_t)info.st_size - have);

		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	return btf_search(data, have, kind, ret_id);
}
