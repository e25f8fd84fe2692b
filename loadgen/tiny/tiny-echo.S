/* Copyright (C) The DSec Authors. SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest function: it writes what it reads, once, and exits with status 0. The load generator
 * calls it, so that a rate is the price of a call and not of a C library's start. Must hold: no
 * library, no data, no executable stack; an input of at most 256 bytes.
 */
	.globl	_start
	.type	_start, %function
_start:
#if defined(__x86_64__)
	sub	$256, %rsp
	xor	%eax, %eax		/* read */
	xor	%edi, %edi
	mov	%rsp, %rsi
	mov	$256, %edx
	syscall
	mov	%rax, %rdx
	mov	$1, %eax		/* write */
	mov	$1, %edi
	syscall
	xor	%edi, %edi
	mov	$60, %eax		/* exit */
	syscall
#elif defined(__aarch64__)
	sub	sp, sp, #256
	mov	x0, #0
	mov	x1, sp
	mov	x2, #256
	mov	x8, #63			/* read */
	svc	#0
	mov	x2, x0
	mov	x0, #1
	mov	x1, sp
	mov	x8, #64			/* write */
	svc	#0
	mov	x0, #0
	mov	x8, #93			/* exit */
	svc	#0
#else
#error "tiny-echo is not written for this processor"
#endif
	.size	_start, . - _start
	.section .note.GNU-stack, "", %progbits
