/*
 * The network namespaces of `private` sandboxes: loopback, settings, /proc/net masked. Called by
 * the worker. Must hold: a namespace belongs to the host's user namespace, so nothing inside a
 * sandbox can change a setting, an address or a mask; the worker is back in its own when a call
 * returns.
 */
#include "backends/container/netns.h"

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "backends/container/kernel.h"
#include "backends/container/worker.h"

static long setting_write(int proc_fd, const char *path, const char *value)
{
	long fd = kernel_openat(proc_fd, path, O_WRONLY | O_CLOEXEC, 0), r;

	if (fd < 0)
		return fd;
	r = kernel_write((int)fd, value, strlen(value));
	(void)kernel_close((int)fd); /* a setting is taken at once */
	return r < 0 ? r : 0;
}

static long loopback_up(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	long fd = KERNEL_CALL(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return fd;
	r = KERNEL_CALL(SYS_ioctl, fd, SIOCSIFFLAGS, (long)&request);
	(void)kernel_close((int)fd); /* nothing was sent */
	return r;
}

/* The worker is in the new namespace. */
static long netns_furnish(struct worker *w)
{
	static const struct {
		const char *path, *value;
	} settings[] = {
		{ "sys/net/ipv4/ip_unprivileged_port_start", "0" },
		{ "sys/net/ipv4/ping_group_range", "0 2147483647" },
		/* Nothing of one sandbox's connections is kept for the next. */
		{ "sys/net/ipv4/tcp_no_metrics_save", "1" },
	};
	long r = LAUNCH_TRY(&w->attempt, LAUNCH_STEP_NETNS, loopback_up());

	for (unsigned i = 0; r >= 0 && i < sizeof settings / sizeof *settings; i++)
		r = LAUNCH_TRY(&w->attempt, LAUNCH_STEP_NETNS,
			       setting_write(w->sysctl_fd, settings[i].path, settings[i].value));
	return r < 0 ? r : LAUNCH_TRY(&w->attempt, LAUNCH_STEP_NETNS, netns_mask(LAUNCH_FD_PROC));
}

static long netns_new(struct worker *w)
{
	long fd, back, r = sysctl_renew(w, LAUNCH_STEP_NETNS);

	if (r >= 0)
		r = LAUNCH_TRY(&w->attempt, LAUNCH_STEP_NETNS,
			       kernel_unshare(CLONE_NEWNET, w->secret));
	if (r < 0)
		return r;
	r = netns_furnish(w);
	fd = r < 0 ? r :
		     LAUNCH_TRY(&w->attempt, LAUNCH_STEP_NETNS,
				kernel_openat(LAUNCH_FD_PROC, "self/ns/net", O_RDONLY | O_CLOEXEC,
					      0));
	back = kernel_setns(LAUNCH_FD_NETWORK, CLONE_NEWNET, w->secret);
	if (back < 0)
		worker_die("cannot return to its network namespace", back);
	return fd;
}

long netns_make(struct worker *w, int slot_fd)
{
	long fd = netns_new(w), r;

	if (fd < 0)
		return fd;
	r = LAUNCH_TRY(&w->attempt, LAUNCH_STEP_NETNS, nsfs_attach(w, (int)fd, slot_fd, "net"));
	(void)kernel_close((int)fd); /* it hangs in the vault, or goes */
	return r;
}

static long sockstat_read(char *text, size_t bytes)
{
	long n, fd = kernel_openat(LAUNCH_FD_PROC, "thread-self/net/sockstat", O_RDONLY | O_CLOEXEC,
				   0);

	if (fd < 0)
		return fd;
	n = kernel_read((int)fd, text, bytes - 1);
	(void)kernel_close((int)fd); /* only read */
	text[n > 0 ? n : 0] = '\0';
	return n;
}

long netns_is_clean(struct worker *w, int net_fd)
{
	char text[512];
	long back, r = LAUNCH_TRY(&w->attempt, LAUNCH_STEP_NETNS,
				  kernel_setns(net_fd, CLONE_NEWNET, w->secret));

	if (r < 0)
		return r;
	r = LAUNCH_TRY(&w->attempt, LAUNCH_STEP_NETNS, sockstat_read(text, sizeof text));
	back = kernel_setns(LAUNCH_FD_NETWORK, CLONE_NEWNET, w->secret);
	if (back < 0)
		worker_die("cannot return to its network namespace", back);
	if (r < 0)
		return r;
	/* The other figures of the file are the whole host's. */
	return strstr(text, "sockets: used 0\n") && strstr(text, "TCP: inuse 0 ") &&
	       strstr(text, " tw 0 ");
}

long netns_drop(struct worker *w, int slot_fd)
{
	long r = kernel_fchdir(slot_fd);

	if (r < 0)
		return r;
	r = kernel_umount("net", MNT_DETACH | UMOUNT_NOFOLLOW, w->secret);
	if (r >= 0 || r == -EINVAL) /* only its place */
		r = kernel_unlinkat(AT_FDCWD, "net", 0);
	return r == -ENOENT ? 0 : r;
}
