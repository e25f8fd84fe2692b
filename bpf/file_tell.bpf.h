/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How file.bpf.c tells of a file: by its names up to the root of its file system. After lsm.bpf.h.
 */
#pragma once

#include "bpf/lsm.bpf.h"

enum { NAMES_TOLD_MAX = 16, NAME_TOLD_BYTES = 64 };

/* The names from the last one to the first, as far as there is room. */
static __always_inline void path_write(struct policy_violation *record, __u64 at)
{
	struct dentry *dentry = (struct dentry *)at;
	__u32 used = 0;

	record->text_kind = POLICY_TEXT_PATH;
	record->is_cut = 1;
	for (int i = 0; i < NAMES_TOLD_MAX; i++) {
		struct dentry *parent = BPF_CORE_READ(dentry, d_parent);
		long bytes;

		if (parent == dentry) {
			record->is_cut = 0;
			break;
		}
		if (used > POLICY_TEXT_BYTES - NAME_TOLD_BYTES)
			break;
		bytes = bpf_probe_read_kernel_str(record->text + used, NAME_TOLD_BYTES,
						  BPF_CORE_READ(dentry, d_name.name));
		if (bytes < 0 || bytes > NAME_TOLD_BYTES)
			break;
		used += (__u32)bytes;
		dentry = parent;
	}
	record->text_bytes = (__u16)used;
}

static __noinline int file_tell(const struct violation *v, __u64 dentry, __u64 argument)
{
	struct policy_violation *record;

	if (!v)
		return 0;
	record = violation_begin(v);
	if (record) {
		record->argument = argument;
		path_write(record, dentry);
		violation_end(record);
	}
	return 0;
}

static __always_inline bool is_pycache(struct dentry *dentry)
{
	static const char name[] = "__pycache__";
	char text[16] = {};

	return bpf_probe_read_kernel_str(text, sizeof(text), BPF_CORE_READ(dentry, d_name.name)) >
		       0 &&
	       !bpf_strncmp(text, sizeof(name), name);
}

/*
 * What Python does by itself whenever it imports a module, where it may: refused all the same, and
 * told apart, since nobody tried anything.
 */
static __always_inline bool is_bytecode(struct dentry *dentry)
{
	return is_pycache(dentry) || is_pycache(BPF_CORE_READ(dentry, d_parent));
}
