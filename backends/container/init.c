/*
 * PID 1 of every container sandbox: reaps for ever. Freestanding, without data; runs from a sealed
 * memfd of mode 0111 in an address space of its own, so nothing inside can trace it, read it or
 * lock its file. It blocks every signal: only SIGKILL from outside the sandbox ends it.
 */
#include <linux/prctl.h>
#include <stdint.h>

#ifndef __x86_64__
#error "PID 1 is written for x86-64"
#endif

enum {
	CALL_RT_SIGPROCMASK = 14,
	CALL_WAIT4 = 61,
	CALL_RT_SIGTIMEDWAIT = 128,
	CALL_PRCTL = 157,
	BLOCK = 0,
	SET_BYTES = 8,
	CHILD_SIGNAL = 17,
	WAIT_NO_HANG = 1,
	WAIT_ALL = 0x40000000,
};

static inline long call(long number, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return r;
}

__attribute__((noreturn, used)) void _start(void);

void _start(void)
{
	const uint64_t all = ~0ull, child = 1ull << (CHILD_SIGNAL - 1);
	const char name[] = "init";

	(void)call(CALL_RT_SIGPROCMASK, BLOCK, (long)&all, 0, SET_BYTES); /* cannot fail */
	(void)call(CALL_PRCTL, PR_SET_NAME, (long)name, 0, 0);		  /* only for ps */
	for (;;) {
		while (call(CALL_WAIT4, -1, 0, WAIT_NO_HANG | WAIT_ALL, 0) > 0)
			;
		/* A child that ended since the last wait left its signal pending. */
		(void)call(CALL_RT_SIGTIMEDWAIT, (long)&child, 0, 0, SET_BYTES);
	}
}
