/*
 * Owns the reading of a thread's CPU time and sleeps; called by the loop for its watchdog. Holds
 * no state.
 */
#include "engine/base/effort.h"

#include <sys/resource.h>
#include <time.h>

void effort_read(struct effort *ret)
{
	struct rusage usage;
	struct timespec ts;

	/* Neither can fail for this argument. */
	(void)getrusage(RUSAGE_THREAD, &usage);
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	ret->sleeps = usage.ru_nvcsw;
	ret->cpu_ns = (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

bool effort_since(const struct effort *then, uint64_t cpu_ns)
{
	struct effort now;

	effort_read(&now);
	return now.sleeps != then->sleeps || now.cpu_ns - then->cpu_ns >= cpu_ns;
}
