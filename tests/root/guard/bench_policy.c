/*
 * What policies cost: nanoseconds a call outside of every sandbox, in one without a policy and in
 * one with the largest; microseconds to register a sandbox and to forget it; bytes of the kernel's
 * for 100,000 of them. The best of seven rounds. Where the kernel takes no LSM programs, calls cost
 * what they cost without. Not a test: `bench_policy`.
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "bpf/guard.h"
#include "bpf/guard_lsm.h"
#include "bpf/guard_policy.h"
#include "tests/root/guard/bench.h"
#include "tests/root/guard/tree.h"

enum { OPEN, STAT, IOCTL, SOCKET, CONNECT, SEND, FILTERED, CALLS };
enum { OUTSIDE, PLAIN, LARGE, KINDS, MANY = 100000, TEXT_BYTES = 64, FILE_RULES = 960 };

static const char *const call_names[CALLS] = {
	[OPEN] = "open + close, 6 deep",
	[STAT] = "stat, 6 deep",
	[IOCTL] = "ioctl",
	[SOCKET] = "socket + close, unix",
	[CONNECT] = "connect + accept + close, unix",
	[SEND] = "send + recv, unix",
	[FILTERED] = "getppid, behind a filter",
};
static const int repeats[CALLS] = { 20000, 20000, 50000, 10000, 5000, 20000, 50000 };

#define DEEP "/tmp/dsec-bench/a/b/c/d"

struct ends {
	struct sockaddr_un at;
	int listener, pair[2];
};

/* One that refuses nothing. The last calls of a child are behind it. */
static void filtered_once(void)
{
	static bool is_there;
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	const struct sock_fprog filter = { 1, &all };

	if (!is_there) {
		must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
		must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter), "filter");
		is_there = true;
	}
	must(syscall(SYS_getppid), "getppid");
}

static void call_once(int call, const void *with)
{
	const struct ends *ends = with;
	const struct sockaddr *at = (const struct sockaddr *)&ends->at;
	struct stat st;
	char byte = 'x';
	int fd, count;

	switch (call) {
	case OPEN:
		fd = open(DEEP, O_RDONLY | O_CLOEXEC);
		must(fd, "open");
		close(fd);
		break;
	case STAT:
		must(stat(DEEP, &st), "stat");
		break;
	case IOCTL:
		must(ioctl(ends->pair[0], FIONREAD, &count), "ioctl");
		break;
	case SOCKET:
		close(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
		break;
	case CONNECT:
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		must(connect(fd, at, sizeof(ends->at)), "connect");
		close(accept(ends->listener, NULL, NULL));
		close(fd);
		break;
	case FILTERED:
		filtered_once();
		break;
	default:
		must(send(ends->pair[0], &byte, 1, 0), "send");
		must(recv(ends->pair[1], &byte, 1, 0), "recv");
	}
}

static const struct bench bench = { CALLS, repeats, call_once };

/* In a child in the cgroup. */
static int measure(const void *with)
{
	double *best_ns = *(double *const *)with;
	struct ends ends = { .at = { .sun_family = AF_UNIX, .sun_path = "/tmp/dsec-bench/s" } };

	(void)unlink(ends.at.sun_path);
	ends.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must(bind(ends.listener, (const struct sockaddr *)&ends.at, sizeof(ends.at)), "bind");
	must(listen(ends.listener, 64), "listen");
	must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.pair), "pair");
	bench_round(&bench, &ends, best_ns);
	return 0;
}

/* As large as one may be; of none of its files is anything asked. */
static struct guard_policy *policy_large(void)
{
	static char texts[FILE_RULES][TEXT_BYTES];
	static struct guard_rule rules[GUARD_POLICY_RULES_MAX];
	static struct guard_policy policy = {
		.number = 9, .rule_count = GUARD_POLICY_RULES_MAX, .rules = rules, .name = "large"
	};

	for (int i = 0; i < GUARD_POLICY_RULES_MAX; i++) {
		struct guard_rule *rule = &rules[i];

		rule->label = "bench";
		rule->kind = i < FILE_RULES ? GUARD_RULE_FILE : GUARD_RULE_IOCTL;
		rule->value = (uint32_t)i;
		if (i >= FILE_RULES)
			continue;
		(void)snprintf(texts[i], TEXT_BYTES, "/opt/tests/case-%d/expected", i);
		rule->text = texts[i];
		rule->bits = GUARD_FILE_WRITE | GUARD_FILE_SUBTREE;
	}
	return &policy;
}

static long map_kib(const struct guard *guard)
{
	char path[64], line[128];
	long bytes = 0;
	FILE *info;

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d",
		       guard_lsm_map_fd(guard_lsm_of(guard), GUARD_MAP_SANDBOXES));
	info = fopen(path, "re");
	while (info && fgets(line, sizeof(line), info))
		(void)sscanf(line, "memlock: %ld", &bytes);
	if (info)
		fclose(info);
	return bytes >> 10;
}

static void many_measure(struct guard *guard, uint64_t device)
{
	const long before_kib = map_kib(guard);
	double begun = bench_now_ns(), set_us, clear_us;
	long full_kib;

	for (uint64_t i = 1; i <= MANY; i++) {
		const struct guard_sandbox sandbox = { .sandbox = i,
						       .policy = 9,
						       .root_device = device };

		must(guard_sandbox_set(guard, i << 32, &sandbox), "register");
	}
	set_us = (bench_now_ns() - begun) / MANY / 1e3;
	full_kib = map_kib(guard);
	begun = bench_now_ns();
	for (uint64_t i = 1; i <= MANY; i++)
		must(guard_sandbox_clear(guard, i << 32), "forget");
	clear_us = (bench_now_ns() - begun) / MANY / 1e3;
	printf("a sandbox registered %.2f us, forgotten %.2f us; map %ld KiB empty, %ld KiB with "
	       "%d\n",
	       set_us, clear_us, before_kib, full_kib, MANY);
}

int main(void)
{
	static const enum tree_place places[KINDS] = { TREE_STRANGER, TREE_SLOT1, TREE_SLOT0 };
	double(*best_ns)[CALLS] = mmap(NULL, sizeof(double[KINDS + 1][CALLS]),
				       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct guard_sandbox sandbox = { .sandbox = 1, .policy = 9 };
	static struct tree tree;
	struct guard_options options;
	struct guard *guard;
	struct stat st;
	char why[4096];

	must(system("mkdir -p /tmp/dsec-bench/a/b/c && touch " DEEP), "files");
	must(stat(DEEP, &st), DEEP);
	sandbox.root_device = st.st_dev;
	tree_make(&tree);
	for (int round = 0; round < BENCH_ROUNDS; round++) {
		double *best = best_ns[KINDS];

		(void)tree_run(&tree, TREE_SLOT0, measure, &best);
	}
	options = tree_options(&tree);
	must(guard_open(&options, why, sizeof(why), &guard), "guard");
	must(guard_policy_load(guard, policy_large()), "policy");
	must(guard_sandbox_set(guard, tree.ids[TREE_SLOT0], &sandbox), "sandbox");
	for (int round = 0; round < BENCH_ROUNDS; round++)
		for (int kind = 0; kind < KINDS; kind++) {
			double *best = best_ns[kind];

			(void)tree_run(&tree, places[kind], measure, &best);
		}
	printf("LSM programs: %s\n", guard_capabilities(guard) & GUARD_LSM ? "yes" : "no");
	printf("%-32s %9s %16s %16s %16s\n", "ns a call", "no guard", "outside", "no policy",
	       "1,024 rules");
	for (int call = 0; call < CALLS; call++) {
		const double base = best_ns[KINDS][call];

		printf("%-32s %9.0f", call_names[call], base);
		for (int kind = 0; kind < KINDS; kind++)
			printf(" %9.0f %5.2fx", best_ns[kind][call], best_ns[kind][call] / base);
		printf("\n");
	}
	many_measure(guard, st.st_dev);
	guard_close(guard);
	tree_remove(&tree);
	return system("rm -r /tmp/dsec-bench") != 0;
}
