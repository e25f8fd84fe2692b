/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Owns the maps of violations, which all programs share: see violation.bpf.h. Loaded by
 * guard_violations.c before any object that has programs.
 */
#include "vmlinux.h"

#include "bpf/violation.bpf.h"

char program_license[] SEC("license") = "Dual BSD/GPL";
