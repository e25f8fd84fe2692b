/*
 * Owns the advice given when the loop cannot be opened; called by who reports that. Text only.
 */
#include "engine/base/io.h"

#include <errno.h>

const char *io_explain(int error)
{
	switch (error) {
	case -ENOSYS:
		return "this kernel has no io_uring, or a seccomp filter hides it "
		       "(CONFIG_IO_URING=y is needed)";
	case -EPERM:
		return "io_uring is switched off or forbidden: sysctl kernel.io_uring_disabled=0, "
		       "or run as root or in the group kernel.io_uring_group";
	case -ENOMEM:
		return "no memory for the rings: raise RLIMIT_MEMLOCK, or ask for fewer entries";
	case -EINVAL:
		return "this kernel's io_uring lacks SINGLE_ISSUER or DEFER_TASKRUN: "
		       "Linux 6.12 is the minimum";
	case -EMFILE:
	case -ENFILE:
		return "no file descriptor left: raise RLIMIT_NOFILE or sysctl fs.file-max";
	default:
		return NULL;
	}
}
