/*
 * The file helper: one operation on files, inside a sandbox, as one of its unprivileged processes.
 * Started by a launcher worker from a sealed memfd; see docs/files.md. Must hold: it is static and
 * loads nothing from where it runs; it is not dumpable.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "engine/base/cleanup.h"
#include "backends/guest/files/files.h"

int main(void)
{
	auto_close int root_fd = -1;

	/* Its file cannot be read by the sandbox, which says so already. */
	if (prctl(PR_SET_DUMPABLE, 0) < 0)
		return 1;
	(void)prctl(PR_SET_NAME, "dsec-file"); /* only for ps */
	(void)umask(0);			       /* cannot fail */
	(void)signal(SIGPIPE, SIG_IGN);	       /* cannot fail for this signal */
	root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return root_fd < 0 ? 1 : files_serve(root_fd, 0, 1, 2);
}
