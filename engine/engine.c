/*
 * The engine process, from start to end. Called by the keeper in a process of its own.
 */
#include "engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backends/backend.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/config_fit.h"
#include "engine/control.h"
#include "engine/slice.h"
#include "engine/keeper/sweep.h"
#include "engine/policy/policy_files.h"

enum { EXIT_CLEAN = 0, EXIT_BROKEN = 1, EXIT_TRY_AGAIN = 75 };

int engine_sweep(const struct config *config, const struct engine_handover *handover)
{
	int r = sweep_instance(config->instance, handover->cgroup_fd);

	if (config->egress_range && backend_egress_sweep(config->instance) < 0)
		r = -EBUSY;
	return r;
}

/* Without its options nobody knows whether it had a way out. */
int engine_uninstall(const struct config *config, const struct engine_handover *handover)
{
	const struct policy_files policies = { .state = config->state_path,
					       .instance = config->instance };
	int r = sweep_instance(config->instance, handover->cgroup_fd);
	int egress_r = backend_egress_sweep(config->instance);

	if (egress_r == -EOPNOTSUPP)
		log_warning("nft(8) could not look for a table of the instance's, continuing");
	else if (egress_r < 0 && egress_r != -ENOENT) /* without it there is no table */
		r = -EBUSY;
	return r < 0 ? r : policy_files_forget(&policies);
}

/*
 * A table of descriptors that grows while there are threads keeps whoever made it grow waiting for
 * all CPUs, some 10 ms each time: it has its size before. It does not shrink.
 */
static void descriptors_make_room(const struct config *config)
{
	uint64_t most = config_descriptors(config);
	struct rlimit limit;
	int fd;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < most)
		most = limit.rlim_cur;
	fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, (int)(most - 1));
	if (fd >= 0)
		(void)close(fd);
	else
		log_info(
			"a table of %llu descriptors is not to be had err=%s: it grows, continuing",
			(unsigned long long)most, strerror(errno));
}

int engine_run(const struct config *config, const struct engine_handover *handover)
{
	struct control *control;
	int r;

	slice_set(config->slice_us);
	descriptors_make_room(config);
	r = control_open(config, handover, &control);
	if (r < 0) {
		log_error("engine start failed err=%s", strerror(-r));
		/* What another engine still holds, or memory, may be there a moment later. */
		return r == -EBUSY || r == -ENOMEM || r == -EAGAIN ? EXIT_TRY_AGAIN : EXIT_BROKEN;
	}
	control_run(control);
	return control_close(control) < 0 ? EXIT_BROKEN : EXIT_CLEAN;
}
