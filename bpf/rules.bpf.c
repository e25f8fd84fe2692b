/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Owns the maps of policies, which exist where LSM programs cannot be loaded, too. It has no
 * programs. Loaded by guard_lsm.c.
 */
#include "vmlinux.h"

#include "bpf/rule_maps.bpf.h"

char program_license[] SEC("license") = "Dual BSD/GPL";
