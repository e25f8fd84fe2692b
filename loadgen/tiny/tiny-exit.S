/* Copyright (C) The DSec Authors. SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest program: it exits with status 0 and does nothing else. image.sh puts it into every
 * image, and the load generator and the peers run it, so that a rate is the price of the sandbox
 * and not of a C library's start. Must hold: no library, no data, no executable stack.
 */
	.globl	_start
	.type	_start, %function
_start:
#if defined(__x86_64__)
	xor	%edi, %edi
	mov	$60, %eax		/* exit */
	syscall
#elif defined(__aarch64__)
	mov	x0, #0
	mov	x8, #93			/* exit */
	svc	#0
#else
#error "tiny-exit is not written for this processor"
#endif
	.size	_start, . - _start
	.section .note.GNU-stack, "", %progbits
