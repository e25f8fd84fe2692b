/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where clouds answer whoever asks with the machine's own secrets, in every spelling: no policy
 * lets anybody there. Link-local addresses are among them as a whole. After vmlinux.h.
 */
#pragma once

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* In network order, as all below. */
static __always_inline bool metadata_is4(__u32 address)
{
	return (bpf_ntohl(address) >> 16) == 0xa9fe || /* 169.254.0.0/16 */
	       address == bpf_htonl(0x646464c8) ||     /* 100.100.100.200 */
	       address == bpf_htonl(0xa83f8110) ||     /* 168.63.129.16 */
	       address == bpf_htonl(0xc00000c0);       /* 192.0.0.192 */
}

/* An IPv6 address; IPv4 stands in it mapped, compatible, behind NAT64 or 6to4. */
static __always_inline bool metadata_is6(const __u32 *word)
{
	const bool is_wide = !word[0] && !word[1];
	const bool is_nat64 = word[0] == bpf_htonl(0x0064ff9b) && !word[1] && !word[2];
	const __u32 first = bpf_ntohl(word[0]), second = bpf_ntohl(word[1]);
	const bool is_local_nat64 = word[0] == bpf_htonl(0x0064ff9b) &&
				    (bpf_ntohl(word[1]) >> 16) == 1; /* 64:ff9b:1::/48 */

	if (is_nat64 || is_local_nat64 || (is_wide && (!word[2] || word[2] == bpf_htonl(0xffff))))
		return metadata_is4(word[3]);
	if (first >> 16 == 0x2002)
		return metadata_is4(bpf_htonl(first << 16 | second >> 16));
	if (first >> 22 == 0xfe80 >> 6) /* fe80::/10 */
		return true;
	if (first == 0xfd000ec2) /* fd00:ec2::/32 */
		return true;
	/* fd00:c1::a9fe:a9fe, fd20:ce::254 */
	return !word[1] && !word[2] &&
	       ((first == 0xfd0000c1 && word[3] == bpf_htonl(0xa9fea9fe)) ||
		(first == 0xfd2000ce && word[3] == bpf_htonl(0x254)));
}
