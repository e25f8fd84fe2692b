/*
 * Puts the caller into a mount namespace of one tmpfs. Called by the vault's maker and by workers:
 * the fewer mounts a namespace has, the cheaper is its copy for each sandbox.
 */
#include "backends/container/root.h"

#include <sched.h>
#include <string.h>

#include "backends/container/kernel.h"

static long covers_make(int mount_fd)
{
	long r = kernel_mkdirat(mount_fd, ROOT_FOLDER, 0555);

	if (r < 0)
		return r;
	r = kernel_openat(mount_fd, ROOT_FILE, O_CREAT | O_EXCL | O_RDONLY | O_CLOEXEC, 0444);
	return r < 0 ? r : kernel_close((int)r);
}

static long resolver_write(int mount_fd, const char *text)
{
	long r, fd = kernel_openat(mount_fd, ROOT_RESOLVER, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC,
				   0444);

	if (fd < 0)
		return fd;
	r = kernel_write((int)fd, text, strlen(text));
	(void)kernel_close((int)fd); /* on a tmpfs it is written */
	return r;
}

/* The attributes come last: the mount may be read-only. */
static long root_furnish(int mount_fd, const struct root_options *options, uint64_t secret)
{
	struct mount_attr attributes = { .attr_set = options->attributes };
	long r = options->covers ? covers_make(mount_fd) : 0;

	if (r >= 0 && options->resolver)
		r = resolver_write(mount_fd, options->resolver);
	return r < 0 ? r : kernel_mount_setattr(mount_fd, &attributes, secret);
}

/* A new tmpfs that hangs nowhere yet; the descriptor of its mount. */
static long root_mount(const struct root_options *options, uint64_t secret)
{
	long fs = kernel_fsopen("tmpfs", secret), r, mount_fd;

	if (fs < 0)
		return fs;
	r = kernel_fsconfig_string((int)fs, "mode", options->mode, secret);
	if (r >= 0)
		r = kernel_fsconfig_create((int)fs, secret);
	mount_fd = r < 0 ? r : kernel_fsmount((int)fs, 0, secret);
	(void)kernel_close((int)fs); /* the mount, if any, stands alone */
	if (mount_fd < 0)
		return mount_fd;
	r = root_furnish((int)mount_fd, options, secret);
	if (r < 0)
		(void)kernel_close((int)mount_fd); /* and with it the mount */
	return r < 0 ? r : mount_fd;
}

/* The new root is mounted over the old one, which then hangs below it and is taken away. */
static long root_enter(int mount_fd, uint64_t secret)
{
	long r;

	r = kernel_move_mount(mount_fd, AT_FDCWD, "/", secret);
	if (r < 0)
		return r;
	r = kernel_fchdir(mount_fd);
	if (r < 0)
		return r;
	r = kernel_pivot_root(".", ".", secret);
	if (r < 0)
		return r;
	r = kernel_umount(".", MNT_DETACH, secret);
	return r < 0 ? r : kernel_chdir("/");
}

long root_replace(const struct root_options *options, uint64_t secret)
{
	long mount_fd, r;

	r = kernel_unshare(CLONE_NEWNS, secret);
	if (r < 0)
		return r;
	r = KERNEL_CALL(SYS_mount, 0, (long)"/", 0, MS_REC | MS_PRIVATE, 0, secret);
	if (r < 0)
		return r;
	mount_fd = root_mount(options, secret);
	if (mount_fd < 0)
		return mount_fd;
	r = root_enter((int)mount_fd, secret);
	(void)kernel_close((int)mount_fd); /* the mount hangs, or goes */
	return r;
}
