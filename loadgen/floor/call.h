/*
 * System calls as the kernel takes them: -errno back, no errno, nothing of libc's. What a child
 * that shares our memory may use, and what the loops use, so that they make no call unwritten.
 */
#pragma once

#include <sys/syscall.h>

#ifndef __x86_64__
#error "the floor's way into a child is written for x86-64, as the launcher's is"
#endif

static inline __attribute__((always_inline)) long call_six(long number, const long *a)
{
	register long r10 __asm__("r10") = a[3];
	register long r8 __asm__("r8") = a[4];
	register long r9 __asm__("r9") = a[5];
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
}

#define CALL(number, ...) call_six((number), (const long[6]){ __VA_ARGS__ })
