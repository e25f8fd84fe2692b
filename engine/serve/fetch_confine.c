/*
 * Confining dsec-fetch. Called once, by its main(). Must hold: whoever takes it over by what a
 * server says has the socket to dsec-store, which believes nothing, and connections of his own.
 */
#include "engine/serve/fetch_confine.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backends/image.h"
#include "backends/store/powers.h"

enum { NOBODY = 65534, MEMORY_BYTES_MAX = 512 << 20, FILES_MAX = 32 };

/* It needs fewer than the programs that work on files. */
static int limits_lower(void)
{
	const struct rlimit files = { FILES_MAX, FILES_MAX };
#ifndef __SANITIZE_ADDRESS__ /* its shadow is larger */
	const struct rlimit memory = { MEMORY_BYTES_MAX, MEMORY_BYTES_MAX };

	if (setrlimit(RLIMIT_AS, &memory) < 0)
		return -errno;
#endif
	return setrlimit(RLIMIT_NOFILE, &files) < 0 ? -errno : 0;
}

int fetch_confine(void)
{
	int r = powers_limit();

	if (r >= 0)
		r = limits_lower();
	if (r < 0)
		return r;
	/* The scratch is root's: a place where nobody finds anything. */
	if (fchdir(IMAGE_FD_SCRATCH) < 0 || chroot(".") < 0 || close(IMAGE_FD_SCRATCH) < 0 ||
	    setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	return powers_keep_calls(POWERS_FETCHER);
}
