/*
 * The 32-bit entry of a 64-bit kernel, int 0x80; numbers are as in that table. A machine that has
 * none answers the instruction with a signal (some hypervisors, and kernels without the
 * emulation): to who wants in by that way it is closed, -ENOSYS, as a filter would say.
 */
#pragma once

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

static sigjmp_buf entry_32_missing;

static inline void entry_32_signal(int number)
{
	siglongjmp(entry_32_missing, number);
}

/* The call's result; one thread at a time. */
static inline long entry_32(long number, long first, long second, long third)
{
	volatile long r = -ENOSYS; /* it comes back twice */
#ifdef __x86_64__
	struct sigaction catch = { .sa_handler = entry_32_signal }, before;

	sigaction(SIGSEGV, &catch, &before);
	if (sigsetjmp(entry_32_missing, 1) == 0)
		__asm__ volatile("int $0x80"
				 : "=a"(r)
				 : "a"(number), "b"(first), "c"(second), "d"(third)
				 : "memory", "r8", "r9", "r10", "r11");
	sigaction(SIGSEGV, &before, NULL);
#else
	(void)number, (void)first, (void)second, (void)third;
	(void)entry_32_signal;
#endif
	return (int)r;
}
