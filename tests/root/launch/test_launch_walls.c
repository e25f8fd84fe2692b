/*
 * What a policy puts up around a sandbox without BPF: mounts and a second filter, each attacked
 * from inside by a program that a policy binds, beside what happens without one.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "backends/container/filter.h"
#include "backends/container/walls.h"
#include "bpf/guard_policy.h"
#include "engine/base/cleanup.h"
#include "tests/root/launch/harness.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum {
	KEEP = GUARD_FILE_WRITE | GUARD_FILE_REPLACE | GUARD_FILE_METADATA | GUARD_FILE_SUBTREE,
	HIDE = GUARD_FILE_HIDE | GUARD_FILE_SUBTREE,
	NOEXEC = GUARD_FILE_EXECUTE | GUARD_FILE_SUBTREE,
};

#define FILE_RULE(its_bits, its_path)                                                              \
	{                                                                                          \
		.kind = GUARD_RULE_FILE, .bits = (its_bits), .text = (its_path)                    \
	}
#define VALUE_RULE(its_kind, its_value)                                                            \
	{                                                                                          \
		.kind = GUARD_RULE_##its_kind, .value = (its_value)                                \
	}

static const struct guard_rule file_rules[] = {
	FILE_RULE(KEEP, "/sbin"),
	FILE_RULE(KEEP, "/usr/bin/python"),
	FILE_RULE(KEEP, "/usr/bin"),
	FILE_RULE(KEEP, "/lib/out"),
	FILE_RULE(HIDE, "/var/log/grader/"),
	FILE_RULE(HIDE, "//opt/./answer"),
	FILE_RULE(NOEXEC, "/tmp"),
	FILE_RULE(KEEP, "/nowhere/at/all"),
	FILE_RULE(KEEP, "/loop"),
	FILE_RULE(HIDE, "/etc/passwd/below"),
};

static const struct guard_rule call_rules[] = {
	VALUE_RULE(FAMILY, AF_UNIX),
	VALUE_RULE(FAMILY, AF_INET6),
	VALUE_RULE(FAMILY, AF_NETLINK),
	VALUE_RULE(FAMILY, AF_VSOCK),
	VALUE_RULE(IOCTL, 0x586d),
	VALUE_RULE(IOCTL, 0x660b),
	VALUE_RULE(IOCTL, 0x660b),
	VALUE_RULE(PROCESS, GUARD_PROCESS_PTRACE),
	VALUE_RULE(PROCESS, GUARD_PROCESS_SETSCHEDULER),
	VALUE_RULE(PROCESS, GUARD_PROCESS_CORE_SCHED),
};

/* Ioctls that may be, and no others; the last two are of the library's filter. */
static const struct guard_rule list_rules[] = {
	{ .kind = GUARD_RULE_IOCTL, .bits = GUARD_IOCTL_OTHERS, .value = GUARD_IOCTL_NONE },
	{ .kind = GUARD_RULE_IOCTL, .bits = GUARD_IOCTL_ALLOW, .value = 0x541b },
	{ .kind = GUARD_RULE_IOCTL, .bits = GUARD_IOCTL_ALLOW, .value = 0x5413 },
	VALUE_RULE(IOCTL, 0x660b),
	VALUE_RULE(FAMILY, AF_NETLINK),
};

/* What every sandbox is refused already. */
static const struct guard_rule standing_rules[] = {
	VALUE_RULE(FAMILY, AF_PACKET),
	VALUE_RULE(IOCTL, 0x586d),
	VALUE_RULE(PROCESS, GUARD_PROCESS_BPF),
	VALUE_RULE(PROCESS, GUARD_PROCESS_PERF),
	VALUE_RULE(PROCESS, GUARD_PROCESS_USERFAULTFD),
	VALUE_RULE(PROCESS, GUARD_PROCESS_KEYCTL),
	VALUE_RULE(PROCESS, GUARD_PROCESS_USERNS),
	VALUE_RULE(PROCESS, GUARD_PROCESS_IO_URING),
	VALUE_RULE(PROCESS, GUARD_PROCESS_MOUNT),
};

#define SHEET(rules) sheet_of(rules, COUNT(rules))

static int sheet_of(const struct guard_rule *rules, uint32_t count)
{
	const struct guard_policy policy = { .number = 1, .rule_count = count, .rules = rules };
	int fd = -1;

	expect(walls_make(&policy, &(struct walls_wish){ 0 }, &fd) == 0);
	return fd;
}

static void look(struct harness *h, const struct guard_rule *rules, uint32_t count,
		 const char *what)
{
	struct box box;

	h->walls_fd = rules ? sheet_of(rules, count) : 0;
	box = box_start(h, 0, LAUNCH_REBUILD);
	expect(probe(h, &box, what, NULL));
	box_end(h, &box);
	if (h->walls_fd)
		(void)close(h->walls_fd); /* of this test */
}

static void without_a_policy_all_of_it_is_allowed(struct harness *h)
{
	look(h, NULL, 0, "walls-open");
}

static void protected_files_are_out_of_reach_by_every_route(struct harness *h)
{
	look(h, file_rules, COUNT(file_rules), "walls-protect");
}

static void hidden_files_are_neither_listed_nor_entered(struct harness *h)
{
	look(h, file_rules, COUNT(file_rules), "walls-hide");
}

static void nothing_is_run_from_a_noexec_folder(struct harness *h)
{
	look(h, file_rules, COUNT(file_rules), "walls-noexec");
}

static void a_path_the_image_lacks_is_told_and_passed_over(struct harness *h)
{
	h->walls_fd = SHEET(file_rules);
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	expect(h->spawned.rules_absent[0] == (1u << 7 | 1u << 8 | 1u << 9));
	expect(probe(h, &box, "say", NULL));
	box_end(h, &box);
	(void)close(h->walls_fd); /* of this test */
}

/* "/lib" leads out of the root, and "out" in it further: both end inside. */
static void no_link_of_an_image_leads_a_wall_outside(struct harness *h)
{
	static const struct guard_rule rules[] = { FILE_RULE(HIDE, "/lib/out") };
	struct box box;

	h->walls_fd = SHEET(rules);
	box = box_start(h, 0, LAUNCH_REBUILD);
	expect(h->spawned.rules_absent[0] == 0);
	const char *const argv[] = { "/bin/probe", "cat", NULL };
	auto_close int outside = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
	char byte;

	expect(read(outside, &byte, 1) == 1);
	expect(harness_exec(h, &box, argv, NULL, NULL) == 0);
	/* The sandbox's own is what is covered: nobody is in it any more. */
	expect(harness_exec(h, &box, argv, &(struct exec_options){ .user = "user" }, NULL) == -1);
	box_end(h, &box);
	(void)close(h->walls_fd); /* of this test */
}

static void families_are_refused_with_junk_and_in_pairs(struct harness *h)
{
	look(h, call_rules, COUNT(call_rules), "walls-families");
}

static void tracing_and_priorities_are_refused_inside(struct harness *h)
{
	look(h, call_rules, COUNT(call_rules), "walls-processes");
}

static void ioctls_are_refused_by_number_on_every_entry(struct harness *h)
{
	look(h, call_rules, COUNT(call_rules), "walls-ioctl");
}

static void ioctls_that_are_not_listed_are_refused_on_every_entry(struct harness *h)
{
	look(h, list_rules, COUNT(list_rules), "walls-ioctl-list");
}

static void rules_that_hold_for_all_need_no_sheet(struct harness *h)
{
	struct guard_rule audit = file_rules[0];

	(void)h;
	expect(SHEET(standing_rules) == -1);
	audit.is_audit = true;
	expect(sheet_of(&audit, 1) == -1);
	for (unsigned i = 0; i < COUNT(standing_rules); i++)
		expect(walls_levels(&standing_rules[i], false) & GUARD_LEVEL_SECCOMP);
	expect(walls_levels(&audit, false) == 0);
	expect(walls_levels(&file_rules[0], false) == GUARD_LEVEL_MOUNT);
	expect(walls_levels(&file_rules[0], true) == 0);
}

/* Another worker, which knows nothing of the policy, and a terminal: the same walls. */
static void a_new_worker_puts_up_the_same_walls(struct harness *h)
{
	struct box box;

	h->walls_fd = SHEET(call_rules);
	box = box_start(h, 0, LAUNCH_REBUILD);
	worker_kill(h, 0);
	expect(worker_start_another(h, 0));
	expect(probe(h, &box, "walls-families", NULL));
	box_end(h, &box);
	(void)close(h->walls_fd); /* of this test */
}

/* As slot_untouched() has it. */
static void walls_leave_a_root_untouched(struct harness *h)
{
	struct launch_baseline baseline;
	struct statfs usage;
	struct stat upper;
	struct box box;

	h->walls_fd = SHEET(file_rules);
	box = box_start(h, 0, LAUNCH_REBUILD);
	baseline = h->spawned.baseline;
	expect(probe(h, &box, "say", NULL));
	box_stop(&box);
	expect(fstatat(h->vault.root_fd, "slots/0/up/u", &upper, 0) == 0);
	auto_close int up = openat(h->vault.root_fd, "slots/0/up", O_PATH | O_CLOEXEC);
	expect(fstatfs(up, &usage) == 0);
	expect((uint64_t)upper.st_ctim.tv_sec * 1000000000u + (uint64_t)upper.st_ctim.tv_nsec ==
	       baseline.ctime_ns);
	expect((uint64_t)usage.f_ffree == baseline.free_inodes);
	expect((uint64_t)usage.f_bfree == baseline.free_blocks);
	(void)close(h->walls_fd); /* of this test */
	h->walls_fd = 0;
	/* And the next one there, without a policy, is as free as ever. */
	box = box_start(h, 0, 0);
	expect(probe(h, &box, "walls-open", NULL));
	box_end(h, &box);
}

/* By a kernel without AppArmor or with it: nothing runs that was to be confined and is not. */
static void an_unknown_profile_fails_the_spawn_and_leaves_nothing(struct harness *h)
{
	const struct guard_policy nothing = { .number = 1 };
	struct launch_request request = harness_request(h, LAUNCH_SPAWN, 0);
	struct launch_reply reply;
	auto_close int fd = -1;

	expect(walls_make(&nothing, &(struct walls_wish){ .profile = "dsec-of-nobody" }, &fd) ==
		       0 &&
	       fd >= 0);
	const struct parcel parcel = { .fds = &fd, .fd_count = 1 };

	request.flags = LAUNCH_REBUILD | LAUNCH_WALLS;
	reply = harness_ask(h, 0, &request, &parcel);
	expect(reply.error != 0 && reply.step == LAUNCH_STEP_WALLS && reply.pid > 0);
	(void)child_reap(reply.pid);
	struct box box = box_start(h, 0, 0);

	expect(probe(h, &box, "walls-open", NULL));
	box_end(h, &box);
}

static int sheet_write(const void *bytes, size_t size)
{
	int fd = memfd_create("sheet", MFD_CLOEXEC);

	expect(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	return fd;
}

/* Whatever a sheet says, a worker answers, and the next request is served. */
static void a_sheet_that_does_not_fit_is_refused(struct harness *h)
{
	struct {
		struct walls_head head;
		struct walls_mount mount;
		char text[8];
	} good = { { .mount_count = 1, .text_bytes = 8 }, { 1, HIDE, 0 }, "/opt" }, bad[7];

	for (unsigned i = 0; i < COUNT(bad); i++)
		bad[i] = good;
	bad[0].head.mount_count = UINT32_MAX;
	bad[1].head.filter_count = 0x20000000;
	bad[2].head.text_bytes = 9;
	bad[3].mount.path = 8;
	bad[4].mount.rule = LAUNCH_RULES_MAX + 1;
	bad[5].text[7] = 'x';
	memset(bad[6].head.profile, 'x', sizeof bad[6].head.profile);
	for (unsigned i = 0; i < COUNT(bad); i++) {
		auto_close int fd = sheet_write(&bad[i], sizeof bad[i]);
		struct launch_request request = harness_request(h, LAUNCH_SPAWN, 0);
		const struct parcel parcel = { .fds = &fd, .fd_count = 1 };

		request.flags = LAUNCH_REBUILD | LAUNCH_WALLS;
		expect(harness_ask(h, 0, &request, &parcel).error == EINVAL);
	}
	for (unsigned op = LAUNCH_BUILD; op <= LAUNCH_EXEC; op++) {
		struct launch_request request = harness_request(h, op, 0);

		request.flags = LAUNCH_REBUILD | LAUNCH_WALLS;
		expect(harness_ask(h, 0, &request, NULL).error == EINVAL);
	}
	auto_close int fd = sheet_write(&good, sizeof good);

	h->walls_fd = fd;
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	h->walls_fd = 0;
	expect(probe(h, &box, "say", NULL));
	box_end(h, &box);
}

static double spawn_us(struct harness *h, int sheet)
{
	enum { SPAWNS = 20 };
	struct timespec start, end;
	struct box box;

	h->walls_fd = sheet;
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (unsigned i = 0; i < SPAWNS; i++) {
		box = box_start(h, 0, 0);
		box_stop(&box);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	h->walls_fd = 0;
	return ((double)(end.tv_sec - start.tv_sec) * 1e6 +
		(double)(end.tv_nsec - start.tv_nsec) / 1e3) /
	       SPAWNS;
}

static struct launch_reply bind_ask(struct harness *h, unsigned worker, int sheet_fd)
{
	struct launch_request request = harness_request(h, LAUNCH_BIND, 0);
	const struct parcel parcel = { .fds = &sheet_fd, .fd_count = 1 };

	request.flags = LAUNCH_WALLS;
	return harness_ask(h, worker, &request, &parcel);
}

static bool bound_probe(struct harness *h, const struct box *box, const char *what)
{
	const char *const argv[] = { "/bin/probe", what, NULL };

	return harness_exec(h, box, argv, &(struct exec_options){ .worker = 1 }, NULL) == 0;
}

/* Whose program has it without being given it; SCHED_IDLE is set in spite of it. */
static void what_a_bound_worker_starts_has_its_filter(struct harness *h)
{
	const struct exec_options idle = { .worker = 1, .flags = LAUNCH_SCHED_IDLE };
	const char *const argv[] = { "/bin/probe", "walls-families", NULL };
	struct box box;

	h->walls_fd = SHEET(call_rules);
	box = box_start(h, 0, LAUNCH_REBUILD);
	expect(bind_ask(h, 1, h->walls_fd).error == 0);
	expect(bound_probe(h, &box, "walls-families"));
	expect(bound_probe(h, &box, "walls-processes"));
	expect(harness_exec(h, &box, argv, &idle, NULL) == 0);
	box_end(h, &box);
	(void)close(h->walls_fd); /* of this test */
}

static void a_bound_worker_serves_its_filter_alone(struct harness *h)
{
	const int calls = SHEET(call_rules), files = SHEET(file_rules), list = SHEET(list_rules);
	const int others[] = { files, list };
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	expect(bind_ask(h, 1, files).error == EINVAL); /* there is no filter in it */
	expect(bind_ask(h, 1, calls).error == 0);
	expect(bind_ask(h, 1, calls).error == EINVAL);
	for (uint32_t op = 0; op <= LAUNCH_OP_COUNT; op++) {
		struct launch_request request = harness_request(h, op, 1);

		request.flags = 0;
		expect(harness_ask(h, 1, &request, NULL).error == EINVAL);
	}
	for (unsigned i = 0; i < COUNT(others); i++) {
		struct launch_request request = harness_request(h, LAUNCH_SPAWN, 1);
		const struct parcel parcel = { .fds = &others[i], .fd_count = 1 };

		request.flags = LAUNCH_WALLS | LAUNCH_REBUILD;
		expect(harness_ask(h, 1, &request, &parcel).error == EINVAL);
	}
	box_end(h, &box);
	(void)close(calls); /* of this test, as the others */
	(void)close(files);
	(void)close(list);
}

/* Figures, no judgement: the best of some rounds each, in turn. */
static void what_walls_cost(struct harness *h)
{
	enum { PLAIN, ONE, FILES, CALLS, BOTH, SHEETS, ROUNDS = 8 };
	struct guard_rule all[COUNT(file_rules) + COUNT(call_rules)];
	const struct guard_policy policy = { .rule_count = COUNT(call_rules), .rules = call_rules };
	struct sock_filter filter[WALLS_FILTER_MAX];
	double best[SHEETS];
	uint32_t count = 0;
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	memcpy(all, file_rules, sizeof file_rules);
	memcpy(all + COUNT(file_rules), call_rules, sizeof call_rules);
	int sheets[SHEETS] = { 0, sheet_of(&file_rules[2], 1), SHEET(file_rules), SHEET(call_rules),
			       sheet_of(all, COUNT(all)) };

	box_stop(&box);
	expect(filter_compile(&policy, filter, &count) == 0 && count > 0);
	for (unsigned i = 0; i < SHEETS; i++)
		best[i] = 1e9;
	for (unsigned i = 0; i < ROUNDS * SHEETS; i++) {
		double us = spawn_us(h, sheets[i % SHEETS]);

		if (us < best[i % SHEETS])
			best[i % SHEETS] = us;
	}
	note("spawn and end: %.0f us; with one bind %.0f, %zu file rules %.0f, %u instructions "
	     "%.0f, both %.0f",
	     best[PLAIN], best[ONE], COUNT(file_rules), best[FILES], count, best[CALLS],
	     best[BOTH]);
	for (unsigned i = ONE; i < SHEETS; i++)
		(void)close(sheets[i]); /* of this test */
	box = box_start(h, 0, 0);
	box_end(h, &box);
}

#define TEST(name, ...)                                                                            \
	{                                                                                          \
#name, name,                                                                       \
		{                                                                                  \
			.image = "walls", __VA_ARGS__                                              \
		}                                                                                  \
	}

static const struct harness_test tests[] = {
	TEST(without_a_policy_all_of_it_is_allowed, ),
	TEST(protected_files_are_out_of_reach_by_every_route, ),
	TEST(hidden_files_are_neither_listed_nor_entered, ),
	TEST(nothing_is_run_from_a_noexec_folder, ),
	TEST(a_path_the_image_lacks_is_told_and_passed_over, ),
	TEST(no_link_of_an_image_leads_a_wall_outside, ),
	TEST(families_are_refused_with_junk_and_in_pairs, ),
	TEST(tracing_and_priorities_are_refused_inside, ),
	TEST(ioctls_are_refused_by_number_on_every_entry, ),
	TEST(ioctls_that_are_not_listed_are_refused_on_every_entry, ),
	TEST(rules_that_hold_for_all_need_no_sheet, ),
	TEST(a_new_worker_puts_up_the_same_walls, ),
	TEST(walls_leave_a_root_untouched, ),
	TEST(an_unknown_profile_fails_the_spawn_and_leaves_nothing, ),
	TEST(a_sheet_that_does_not_fit_is_refused, ),
	TEST(what_a_bound_worker_starts_has_its_filter, .workers = 2),
	TEST(a_bound_worker_serves_its_filter_alone, .workers = 2),
	TEST(what_walls_cost, ),
};

int main(int argc, char **argv)
{
	return harness_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
