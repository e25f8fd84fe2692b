/* Copyright (C) The DSec Authors. SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for ever and wakes for nothing but a signal that ends it. image.sh puts it into every
 * image; the load generator runs it where something must stay alive at no cost.
 * Must hold: no library, no data, no executable stack.
 */
	.globl	_start
	.type	_start, %function
_start:
#if defined(__x86_64__)
	mov	$34, %eax		/* pause */
	syscall
	jmp	_start
#elif defined(__aarch64__)
	mov	x0, #0			/* ppoll of nothing, without end */
	mov	x1, #0
	mov	x2, #0
	mov	x3, #0
	mov	x4, #0
	mov	x8, #73
	svc	#0
	b	_start
#else
#error "tiny-pause is not written for this processor"
#endif
	.size	_start, . - _start
	.section .note.GNU-stack, "", %progbits
