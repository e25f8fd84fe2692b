/*
 * A proc of the worker's own for the settings of namespaces. Called before a user or network
 * namespace is furnished. Must hold: it is renewed now and then, since each namespace whose setting
 * was opened leaves an entry of that name in the mount's cache, and every later look-up compares
 * them all, one by one (with 5,000 user namespaces in one proc: 3 ms a slot).
 */
#include "backends/container/kernel.h"
#include "backends/container/worker.h"

enum { USES_MAX = 64 };

long sysctl_renew(struct worker *w, uint32_t step)
{
	struct attempt *a = &w->attempt;
	long r, fs, fd = -1;

	if (w->sysctl_fd > 0 && ++w->sysctl_uses < USES_MAX)
		return 0;
	fs = LAUNCH_TRY(a, step, kernel_fsopen("proc", w->secret));
	if (fs < 0)
		return fs;
	r = LAUNCH_TRY(a, step, kernel_fsconfig_create((int)fs, w->secret));
	if (r >= 0)
		r = fd = LAUNCH_TRY(a, step,
				    kernel_fsmount((int)fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
						   w->secret));
	(void)kernel_close((int)fs); /* the mount holds what it needs */
	if (r < 0)
		return r;
	if (w->sysctl_fd > 0)
		(void)kernel_close(w->sysctl_fd); /* goes, with its cache */
	w->sysctl_fd = (int)fd;
	w->sysctl_uses = 0;
	return 0;
}
