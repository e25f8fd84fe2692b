/*
 * Probes of the kernel itself: its version, what root may do, processes, memory files, seccomp,
 * AppArmor, virtual machines. Called by check.c, each in a process of its own.
 */
#include "engine/check/check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/check/child.h"
#include "engine/check/file.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#define MFD_EXEC	0x0010U
#endif

static void kernel_probe(const struct check_context *context, struct check_result *result)
{
	unsigned int major = 0, minor = 0;
	struct utsname host;

	(void)context;
	(void)uname(&host);				     /* cannot fail */
	(void)sscanf(host.release, "%u.%u", &major, &minor); /* 0.0 is too old */
	if (major > 6 || (major == 6 && minor >= 12))
		check_ok(result, "%.100s", host.release);
	else
		check_missing(result, "%.100s is older than 6.12", host.release);
}

static void root_probe(const struct check_context *context, struct check_result *result)
{
	static const struct {
		int number;
		const char *name;
	} needed[] = {
		{ CAP_SYS_ADMIN, "sys_admin" },	  { CAP_SETUID, "setuid" },
		{ CAP_SETGID, "setgid" },	  { CAP_SETPCAP, "setpcap" },
		{ CAP_CHOWN, "chown" },		  { CAP_DAC_OVERRIDE, "dac_override" },
		{ CAP_FOWNER, "fowner" },	  { CAP_KILL, "kill" },
		{ CAP_MKNOD, "mknod" },		  { CAP_NET_ADMIN, "net_admin" },
		{ CAP_SYS_CHROOT, "sys_chroot" }, { CAP_SYS_PTRACE, "sys_ptrace" },
	};
	unsigned long long effective = 0;
	char lacking[128] = "";
	size_t bytes = 0;

	(void)context;
	if (geteuid() != 0) {
		check_missing(result, "effective user %u", geteuid());
		return;
	}
	if (file_field("/proc/self/status", "CapEff:", 16, &effective) < 0) {
		check_missing(result, "/proc/self/status has no CapEff");
		return;
	}
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		if (!(effective >> needed[i].number & 1) && bytes < sizeof(lacking) - 20)
			bytes += (size_t)snprintf(lacking + bytes, sizeof(lacking) - bytes, " %s",
						  needed[i].name);
	}
	if (bytes)
		check_missing(result, "root without capabilities%s", lacking);
	else if (!(effective >> CAP_SYS_RESOURCE & 1))
		check_degraded(result, "root without sys_resource: hard limits cannot be raised");
	else
		check_ok(result, "all capabilities that are needed");
}

/* A grandchild whose parent ended must become ours. */
static void subreaper_probe(const struct check_context *context, struct check_result *result)
{
	int pid, status, orphans = 0;

	(void)context;
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
		check_failed(result, "prctl");
		return;
	}
	pid = probe_child_start(0, -1);
	if (pid == 0) {
		/* Not by probe_child_start(): it would die with its parent. */
		if (fork() == 0)
			_exit(7);
		_exit(0);
	}
	while (pid > 0 && waitpid(-1, &status, 0) > 0)
		orphans += WIFEXITED(status) && WEXITSTATUS(status) == 7;
	if (orphans == 1)
		check_ok(result, "an orphan came to its subreaper");
	else
		check_missing(result, "an orphan did not come to its subreaper");
}

static void pidfd_probe(const struct check_context *context, struct check_result *result)
{
	int pid = probe_child_start(0, -1);
	auto_close int fd = -1;
	struct pollfd ended = { .events = POLLIN };
	siginfo_t info = { 0 };

	(void)context;
	if (pid == 0) {
		pause();
		_exit(0);
	}
	fd = pid < 0 ? -1 : pidfd_open(pid, 0);
	ended.fd = fd;
	if (fd < 0)
		check_failed(result, "pidfd_open");
	else if (pidfd_send_signal(fd, SIGKILL, NULL, 0) < 0)
		check_failed(result, "pidfd_send_signal");
	else if (poll(&ended, 1, 2000) != 1)
		check_missing(result, "the pidfd of a dead process is not readable");
	else if (waitid(P_PIDFD, (id_t)fd, &info, WEXITED) < 0 || info.si_pid != pid)
		check_failed(result, "waitid(P_PIDFD)");
	else
		check_ok(result, "opened, signalled, polled and waited for");
}

static void memfd_probe(const struct check_context *context, struct check_result *result)
{
	auto_close int program =
		memfd_create("dsec-check", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	auto_close int data = memfd_create("dsec-check", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
	void *map;

	(void)context;
	if (program < 0) {
		check_failed(result, "memfd_create(MFD_EXEC)");
		return;
	}
	if (data < 0) {
		check_failed(result, "memfd_create(MFD_NOEXEC_SEAL)");
		return;
	}
	if (ftruncate(program, 4096) < 0 ||
	    fcntl(program, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0) {
		check_failed(result, "F_ADD_SEALS");
		return;
	}
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, program, 0);
	if (map != MAP_FAILED || errno != EPERM)
		check_missing(result, "a sealed file could be mapped for writing");
	else
		check_ok(result, "seals hold, MFD_EXEC and MFD_NOEXEC_SEAL known");
}

static void seccomp_probe(const struct check_context *context, struct check_result *result)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ETOOMANYREFS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {
		.len = sizeof(code) / sizeof(code[0]),
		.filter = code,
	};

	(void)context;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		check_failed(result, "no_new_privs");
	else if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
		check_failed(result, "seccomp");
	else if (syscall(SYS_getppid) >= 0 || errno != ETOOMANYREFS)
		check_missing(result, "an installed filter refused nothing");
	else
		check_ok(result, "a filter refuses what it lists");
}

static void apparmor_probe(const struct check_context *context, struct check_result *result)
{
	char enabled[8] = "";

	(void)context;
	if (file_text("/sys/module/apparmor/parameters/enabled", enabled, sizeof(enabled)) < 0)
		check_missing(result, "not in this kernel");
	else if (enabled[0] != 'Y')
		check_missing(result, "in the kernel, not enabled");
	else if (access("/sys/kernel/security/apparmor/.load", W_OK) < 0)
		check_degraded(result, "enabled, but securityfs is not mounted or not writable");
	else if (access("/sbin/apparmor_parser", X_OK) < 0)
		check_degraded(result, "enabled, but there is no apparmor_parser");
	else
		check_ok(result, "enabled, profiles can be loaded");
}

static void kvm_probe(const struct check_context *context, struct check_result *result)
{
	auto_close int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	auto_close int machine = -1;
	int version;

	(void)context;
	if (fd < 0) {
		check_failed(result, "/dev/kvm");
		return;
	}
	version = ioctl(fd, KVM_GET_API_VERSION, 0);
	if (version != KVM_API_VERSION) {
		check_missing(result, "API version %d, not %d", version, KVM_API_VERSION);
		return;
	}
	machine = ioctl(fd, KVM_CREATE_VM, 0);
	if (machine < 0)
		check_failed(result, "KVM_CREATE_VM");
	else
		check_ok(result, "a machine can be made (no guest was booted)");
}

const struct check_probe check_kernel_probes[] = {
	{ "kernel", true, 0, kernel_probe, "nothing of DSec is known to work",
	  "use Debian 13, or Debian 12 with the backports kernel" },
	{ "root", true, 0, root_probe, "limits, or all that needs the capability",
	  "start as root of the host, not of a container; keep CAP_SYS_RESOURCE" },
	{ "subreaper", true, 0, subreaper_probe, "exit statuses are lost when an engine dies",
	  "use a stock kernel" },
	{ "pidfd", true, 0, pidfd_probe, "no process can be signalled safely",
	  "use a stock kernel" },
	{ "memfd", true, 0, memfd_probe, "sandboxes' PID 1 and clients' rings have no memory",
	  "sysctl -w vm.memfd_noexec=0" },
	{ "seccomp", true, 0, seccomp_probe, "system calls of sandboxes cannot be refused",
	  "use a kernel with CONFIG_SECCOMP_FILTER" },
	{ "apparmor", false, 0, apparmor_probe, "the second wall behind BPF is absent",
	  "boot with apparmor=1 and apparmor in lsm=; mount securityfs; install apparmor" },
	{ "kvm", false, 0, kvm_probe, "microvm and fullvm sandboxes run by slow emulation",
	  "use a machine with (nested) virtualisation; modprobe kvm-intel or kvm-amd" },
	{ 0 },
};
