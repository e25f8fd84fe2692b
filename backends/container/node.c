/*
 * The node's part of the container backend: the vault, the programs of PID 1, of the file
 * helper and of workers and
 * the shards' cgroups. Called from the engine's control thread, which may block.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/container/container.h"
#include "backends/container/egress.h"
#include "backends/container/launcher.h"
#include "backends/container/vault.h"
#include "engine/base/cleanup.h"

struct backend_node {
	struct backend_node_options options;
	struct vault vault;
	struct egress egress;
	int program_fd, init_fd, helper_fd, proc_fd;
	int *shard_cgroup_fds;
	struct guard *guard;
	struct governor *governor;
	struct limits_host limits;
};

int backend_node_open(const struct backend_node_options *options, struct backend_node **ret)
{
	struct backend_node *node = calloc(1, sizeof *node);
	int r;

	if (!node)
		return -ENOMEM;
	node->options = *options;
	node->vault = (struct vault){ -1, -1, -1 };
	node->egress.router_ns_fd = node->egress.host_ns_fd = -1;
	node->program_fd = node->init_fd = node->helper_fd = node->proc_fd = -1;
	node->shard_cgroup_fds = calloc(options->shards, sizeof *node->shard_cgroup_fds);
	for (uint32_t i = 0; node->shard_cgroup_fds && i < options->shards; i++)
		node->shard_cgroup_fds[i] = -1;
	r = node->shard_cgroup_fds ? 0 : -ENOMEM;
	if (r >= 0) {
		node->program_fd = open(options->launcher_path, O_RDONLY | O_CLOEXEC);
		node->proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (node->program_fd < 0 || node->proc_fd < 0)
			r = -errno;
	}
	if (r >= 0)
		r = init_open(&node->init_fd);
	if (r >= 0)
		r = helper_open(&node->helper_fd);
	if (r >= 0)
		r = vault_open(&node->vault);
	if (r >= 0 && options->egress_range)
		r = egress_open(&node->egress, options->egress_range, options->egress6_range,
				options->instance);
	if (r >= 0 && options->egress_range && options->has_resolver)
		r = egress_resolver_open(&node->egress, options->shards, options->slots_per_shard);
	if (r < 0) {
		backend_node_close(node);
		return r;
	}
	*ret = node;
	return 0;
}

void backend_node_guard(struct backend_node *node, struct guard *guard)
{
	node->guard = guard;
}

/* The shards' cgroups are empty when every slot was given back. */
void backend_node_close(struct backend_node *node)
{
	char name[16];

	if (!node)
		return;
	backend_governor_stop(node);
	for (uint32_t i = 0; node->shard_cgroup_fds && i < node->options.shards; i++) {
		if (node->shard_cgroup_fds[i] < 0)
			continue;
		cleanup_close(&node->shard_cgroup_fds[i]);
		(void)snprintf(name, sizeof name, "s%u", i);
		/* Not empty: the keeper reports what is left below the root. */
		(void)unlinkat(node->options.cgroup_fd, name, AT_REMOVEDIR);
	}
	egress_close(&node->egress);
	vault_close(&node->vault);
	cleanup_close(&node->program_fd);
	cleanup_close(&node->init_fd);
	cleanup_close(&node->helper_fd);
	cleanup_close(&node->proc_fd);
	free(node->shard_cgroup_fds);
	free(node);
}

/* Controllers of the instance's root go down to the slots, never to leaves. */
static void controllers_pass_down(int root_fd, int shard_fd)
{
	char names[256], word[64];
	auto_close int from = openat(root_fd, "cgroup.subtree_control", O_RDONLY | O_CLOEXEC);
	auto_close int to = openat(shard_fd, "cgroup.subtree_control", O_WRONLY | O_CLOEXEC);
	ssize_t n = from < 0 ? -1 : read(from, names, sizeof names - 1);
	char *rest = NULL;

	if (n <= 0 || to < 0)
		return;
	names[n] = 0;
	for (char *name = strtok_r(names, " \n", &rest); name;
	     name = strtok_r(NULL, " \n", &rest)) {
		int bytes = snprintf(word, sizeof word, "+%s", name);

		/* One that cannot be passed on shows as a limit that is not enforced. */
		if (bytes < (int)sizeof word)
			(void)!write(to, word, (size_t)bytes);
	}
}

int backend_shard_cgroup(struct backend_node *node, uint32_t shard, int *ret_fd, uint64_t *ret_id)
{
	int *fd = &node->shard_cgroup_fds[shard];
	struct stat st;
	char name[16];

	(void)snprintf(name, sizeof name, "s%u", shard);
	if (*fd < 0) {
		if (mkdirat(node->options.cgroup_fd, name, 0755) < 0 && errno != EEXIST)
			return -errno;
		*fd = openat(node->options.cgroup_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (*fd < 0)
			return -errno;
		controllers_pass_down(node->options.cgroup_fd, *fd);
		node->limits = limits_probe(*fd, node->options.images_path);
	}
	if (fstat(*fd, &st) < 0)
		return -errno;
	*ret_fd = *fd;
	*ret_id = st.st_ino;
	return 0;
}

uint32_t backend_unenforced(const struct backend_node *node)
{
	return node->limits.unenforced | (node->governor ? 0u : BOX_LIMIT_PROCESSES);
}

int backend_governor_start(struct backend_node *node, const char **ret_step)
{
	const struct governor_options options = {
		.cgroup_fd = node->options.cgroup_fd,
		.shards = node->options.shards,
		.cpu_burst_ms = node->options.cpu_burst_ms,
		.fork_bomb_s = node->options.fork_bomb_s,
	};
	int r = governor_start(&options, ret_step, &node->governor);

	return r < 0 ? r : !governor_is_prompt(node->governor);
}

int backend_governor_yields(const struct backend_node *node)
{
	return node->governor ? governor_yields(node->governor) : -ENOENT;
}

void backend_governor_stop(struct backend_node *node)
{
	if (!node)
		return; /* the engine did not get that far */
	governor_stop(node->governor);
	node->governor = NULL;
}

const struct limits_host *node_limits(const struct backend_node *node)
{
	return &node->limits;
}

int backend_launcher_start(struct backend_node *node, uint32_t shard, int *ret_fd, pid_t *ret_pid)
{
	struct launcher_options options = {
		.program_fd = node->program_fd,
		.vault = &node->vault,
		.cgroup_fd = node->shard_cgroup_fds[shard],
		.init_fd = node->init_fd,
		.helper_fd = node->helper_fd,
		.proc_fd = node->proc_fd,
		.router_ns_fd = node->egress.router_ns_fd < 0 ? 0 : node->egress.router_ns_fd,
		.resolver = node_resolver_address(node),
		.shard = shard,
	};

	return launcher_start(&options, ret_fd, ret_pid);
}

/* Files are named by the descriptors that we hold: whatever became of their names. */
static int file_set(int context, const char *key, int fd)
{
	char path[40];

	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return fsconfig(context, FSCONFIG_SET_STRING, key, path, 0) < 0 ? -errno : 0;
}

/* Straight from the file, without a loop device: Linux 6.12. */
static int erofs_mount(int image_fd, const struct backend_devices *devices, bool direct)
{
	auto_close int context = fsopen("erofs", FSOPEN_CLOEXEC);
	int mount, r;

	if (context < 0)
		return -errno;
	r = file_set(context, "source", image_fd);
	for (uint32_t i = 0; r >= 0 && i < devices->count; i++)
		r = file_set(context, "device", devices->fds[i]);
	if (r < 0)
		return r;
	if (fsconfig(context, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0 ||
	    (direct && fsconfig(context, FSCONFIG_SET_FLAG, "directio", NULL, 0) < 0) ||
	    fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	mount = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOATIME);
	return mount < 0 ? -errno : mount;
}

/* A regular file, and it cannot make us wait: the mount names it by this descriptor. */
static int image_file_open(const char *path)
{
	struct stat st;
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? take_fd(&fd) : -EMEDIUMTYPE;
}

int backend_image_mount(const char *path, const struct backend_devices *devices, int *ret_mount_fd)
{
	int mount, is_cached = 0;
	auto_close int fd = image_file_open(path);

	if (fd < 0)
		return fd;
	/* Direct reads keep the data in memory once; file systems without them refuse the flag. */
	mount = erofs_mount(fd, devices, true);
	if (mount < 0) {
		mount = erofs_mount(fd, devices, false);
		is_cached = 1;
	}
	if (mount == -EINVAL || mount == -EUCLEAN || mount == -EBADMSG)
		return -EMEDIUMTYPE;
	if (mount < 0)
		return mount;
	*ret_mount_fd = mount;
	return is_cached;
}

/* ---- for the shards ---- */

int node_vault_fd(const struct backend_node *node)
{
	return node->vault.root_fd;
}

uint32_t node_shards(const struct backend_node *node)
{
	return node->options.shards;
}

uint32_t node_egress_address(const struct backend_node *node, uint32_t network)
{
	return egress_address4(&node->egress, network);
}

bool node_egress_address6(const struct backend_node *node, uint32_t network, uint8_t ret[16])
{
	return egress_address6(&node->egress, network, ret);
}

void node_egress_fill(const struct backend_node *node, struct launch_request *request)
{
	request->egress_address = egress_address4(&node->egress, request->network);
	/* Zero: by IPv4 alone. */
	(void)egress_address6(&node->egress, request->network, request->egress_address6);
}

bool backend_resolver_take(struct backend_node *node, uint32_t shard, struct backend_resolver *ret)
{
	int fds[EGRESS_SOCKETS];

	if (!node->egress.resolver_fds)
		return false;
	egress_resolver_take(&node->egress, shard, fds);
	ret->udp_fd = fds[0];
	ret->listen_fd = fds[1];
	ret->tls_fd = fds[2];
	ret->own_count = egress_own(&node->egress, ret->own);
	return true;
}

int backend_outbound_socket(const struct backend_node *node)
{
	return egress_outbound_socket(&node->egress);
}

uint32_t node_resolver_address(const struct backend_node *node)
{
	return egress_resolver_address(&node->egress);
}

int backend_egress_sweep(const char *instance)
{
	return egress_sweep(instance);
}

struct guard *node_guard(const struct backend_node *node)
{
	return node->guard;
}

struct governor *node_governor(const struct backend_node *node)
{
	return node->governor;
}

uint32_t node_slots_per_shard(const struct backend_node *node)
{
	return node->options.slots_per_shard;
}

uint32_t node_uid_base(const struct backend_node *node, uint32_t slot)
{
	return node->options.uid_first + slot * 65536u;
}
