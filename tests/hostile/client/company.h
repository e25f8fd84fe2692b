/*
 * Who may stand beside a bystander and is no attack: what a hostile client costs is compared with
 * them. See docs/hostile.md.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct scene;

/* What some threads took, all together. */
struct effort {
	uint64_t elapsed_us, cpu_us;
	uint64_t pieces; /* how often one of them slept */
	uint32_t threads;
};

/* Of this process, or this thread, so far: time, CPU time and sleeps. */
void effort_of_process(struct effort *ret);
void effort_of_thread(struct effort *ret);

/* Of a claim: its own thread, which asks and sleeps, and those that it starts, which may not. */
struct efforts {
	struct effort own, others;
};

/*
 * As many threads of each sort, which take as much CPU time in as many pieces and do nothing with
 * it, until then. 0 or -errno.
 */
int company_burns(const struct efforts *efforts, uint64_t until_us);
/*
 * A good client that keeps the shards busy: no-ops to each, 64 under way at a time; and threads of
 * its process that compute, as many and as much as a claim's.
 */
bool company_asks(const struct scene *scene, const struct effort *others, uint64_t until_us);
/* One that keeps the workers busy: sandboxes are made, run a program each and go, 32 at a time. */
bool company_works(const struct scene *scene, uint64_t until_us);
