/*
 * The network namespaces of sandboxes: loopback, settings, /proc/net masked; made,
 * entered and taken away. Called by the worker. Must hold: a namespace belongs to the host's user
 * namespace, so nothing inside a sandbox can change a setting, an address or a mask; the worker is
 * back in its own when a request is answered.
 */
#include "backends/container/netns.h"

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "backends/container/kernel.h"
#include "backends/container/worker.h"

#define TRY(step, call) LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)

static void network_name(const struct worker *w, char name[static WORKER_PATH_BYTES])
{
	(void)snprintf(name, WORKER_PATH_BYTES, "%u", w->order.request.network);
}

long setting_write(int proc_fd, const char *path, const char *value)
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
		{ "sys/net/ipv4/tcp_fastopen", "0" },
	};
	long r = TRY(NETNS, loopback_up());

	for (unsigned i = 0; r >= 0 && i < sizeof settings / sizeof *settings; i++)
		r = TRY(NETNS, setting_write(w->sysctl_fd, settings[i].path, settings[i].value));
	return r < 0 ? r : TRY(NETNS, netns_mask(LAUNCH_FD_PROC));
}

long network_enter_new(struct worker *w)
{
	long r = sysctl_renew(w, LAUNCH_STEP_NETNS);

	if (r >= 0)
		r = TRY(NETNS, kernel_unshare(CLONE_NEWNET, w->secret));
	if (r < 0)
		return r;
	r = netns_furnish(w);
	if (r < 0)
		network_leave(w);
	return r;
}

void network_leave(struct worker *w)
{
	long r = kernel_setns(LAUNCH_FD_NETWORK, CLONE_NEWNET, w->secret);

	if (r < 0)
		worker_die("cannot return to its network namespace", r);
}

static long network_new(struct worker *w)
{
	long fd, r = network_enter_new(w);

	if (r < 0)
		return r;
	fd = r = TRY(NETNS, kernel_openat(LAUNCH_FD_PROC, "self/ns/net", O_RDONLY | O_CLOEXEC, 0));
	if (fd >= 0 && w->order.request.flags & LAUNCH_SHARED)
		r = shared_furnish(w);
	if (r >= 0 && w->order.request.flags & LAUNCH_EGRESS)
		r = egress_make(w, (int)fd);
	network_leave(w);
	if (r < 0 && fd >= 0)
		(void)kernel_close((int)fd); /* it goes, and the link with it */
	return r < 0 ? r : fd;
}

long network_make(struct worker *w)
{
	char name[WORKER_PATH_BYTES];
	long nets, r, fd = network_new(w);

	if (fd < 0)
		return fd;
	network_name(w, name);
	r = vault_enter(w);
	if (r >= 0) {
		nets = r = TRY(NETNS, kernel_openat(AT_FDCWD, "/nets",
						    O_PATH | O_DIRECTORY | O_CLOEXEC, 0));
		if (nets >= 0) {
			r = TRY(NETNS, nsfs_attach(w, (int)fd, (int)nets, name));
			if (r < 0)
				(void)kernel_unlinkat((int)nets, name, 0); /* as it was */
			(void)kernel_close((int)nets);			   /* only the way there */
		}
		vault_leave(w);
	}
	(void)kernel_close((int)fd); /* it hangs in the vault, or goes */
	return r;
}

long network_open(struct worker *w)
{
	char path[WORKER_PATH_BYTES];

	(void)snprintf(path, sizeof path, "/nets/%u", w->order.request.network);
	return TRY(NETNS, kernel_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0));
}

long network_enter(struct worker *w, uint32_t step)
{
	long fd, r = vault_enter(w);

	if (r < 0)
		return r;
	fd = network_open(w);
	vault_leave(w);
	if (fd < 0)
		return fd;
	r = LAUNCH_TRY(&w->attempt, step, kernel_setns((int)fd, CLONE_NEWNET, w->secret));
	(void)kernel_close((int)fd); /* the worker is in it */
	return r;
}

/*
 * A setting of the namespace: an open one does not keep it alive, and once it was torn down reading
 * this fails. 35 ms after the last reference here; the kernel does them in batches, one at a time.
 */
static long witness_open(struct worker *w)
{
	long fd, r = sysctl_renew(w, LAUNCH_STEP_NETNS);

	if (r >= 0)
		r = network_enter(w, LAUNCH_STEP_NETNS);
	if (r < 0)
		return r;
	fd = TRY(NETNS,
		 kernel_openat(w->sysctl_fd, "sys/net/core/somaxconn", O_RDONLY | O_CLOEXEC, 0));
	network_leave(w);
	return fd;
}

static long network_unhang(struct worker *w)
{
	char path[WORKER_PATH_BYTES];
	long r = vault_enter(w);

	if (r < 0)
		return r;
	(void)snprintf(path, sizeof path, "/nets/%u", w->order.request.network);
	r = kernel_umount(path, MNT_DETACH | UMOUNT_NOFOLLOW, w->secret);
	if (r >= 0 || r == -EINVAL) /* only its place: a worker was lost with it */
		r = kernel_unlinkat(AT_FDCWD, path, 0);
	vault_leave(w);
	return TRY(NETNS, r == -ENOENT ? 0 : r);
}

long network_drop(struct worker *w)
{
	long r, witness = witness_open(w);

	r = w->order.request.flags & LAUNCH_EGRESS ? egress_drop(w) : 0;
	if (r >= 0)
		r = network_unhang(w);
	if (r >= 0 && witness >= 0)
		w->order.reply_fd = (int)witness;
	else if (witness >= 0)
		(void)kernel_close((int)witness); /* it stays where it is */
	return r;
}
