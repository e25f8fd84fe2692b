/*
 * Sandboxes that attack operations on their files: links, races, things that are no files, files
 * without end, and the helper itself. Cases E26, E29, E30, E33 and user bug 45. Whatever happens
 * inside: no byte outside is seen or touched, nobody waits for long, and the next operation works.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/engine_image.h"
#include "tests/root/engine/file_client.h"
#include "tests/unit/files/tar_make.h"

/* Of a read and a write each; and what never answers would take an hour. */
#define ROUNDS	    fewer(1000, 100)
#define WAIT_MS_MAX longer(15000)

#define FILE_OPTS(...)                                                                             \
	(&(const struct dsec_file_opts){ .size = sizeof(struct dsec_file_opts), __VA_ARGS__ })

static const char secret[] = "of the host";

/* A folder of the host that no sandbox may see. */
struct outside {
	char folder[64], file[96];
};

static bool outside_make(struct outside *ret)
{
	auto_close int fd = -1;

	(void)strcpy(ret->folder, "/tmp/dsec-outside-XXXXXX");
	if (!expect(mkdtemp(ret->folder) != NULL))
		return false;
	(void)snprintf(ret->file, sizeof ret->file, "%s/secret", ret->folder);
	fd = open(ret->file, O_CREAT | O_WRONLY, 0666);
	return expect(fd >= 0 && write(fd, secret, sizeof secret - 1) > 0 &&
		      chmod(ret->folder, 0777) == 0 && fchmod(fd, 0666) == 0);
}

/* It is as it was made; then it goes. */
static void outside_check(struct outside *o)
{
	char bytes[64] = "";
	auto_close int fd = open(o->file, O_RDONLY);

	expect(fd >= 0 && read(fd, bytes, sizeof bytes) == sizeof secret - 1 &&
	       !strcmp(bytes, secret));
	expect(unlink(o->file) == 0);
	if (!expect(rmdir(o->folder) == 0))
		note("something was put into %s", o->folder);
}

static bool holds(const struct filed *filed, const char *text)
{
	return filed->bytes && memmem(filed->data, filed->bytes, text, strlen(text));
}

/* ---- links ---- */

static void links_lead_nowhere_but_inside(struct engine *e)
{
	static const struct {
		const char *path;
		uint32_t flags;
		int error; /* 0: the sandbox's own content */
	} rows[] = {
		{ "/tmp/leaf", 0, ENOENT },
		{ "/tmp/middle/secret", 0, ENOENT },
		{ "/tmp/up/tmp/own", 0, 0 },
		{ "/../../../tmp/own", 0, 0 },
		{ "/tmp/dangling", 0, ENOENT },
		{ "/tmp/absolute", 0, 0 },
		{ "/tmp/loop", 0, ELOOP },
		{ "/tmp/loops/x", 0, ELOOP },
		{ "/tmp/absolute", DSEC_FILE_NO_LINKS, ELOOP },
		{ "/tmp/absolute", DSEC_FILE_NO_FOLLOW, ELOOP },
		{ "/tmp/folder/own", DSEC_FILE_NO_LINKS, ELOOP },
		{ "/proc/self/root/tmp/own", 0, ELOOP },
		{ "/proc/1/cwd/tmp/own", 0, EACCES },
		{ "/proc/1/root/tmp/own", 0, EACCES },
		{ "/proc/self/exe", 0, ELOOP },
		{ "/proc/self/fd/1", 0, ELOOP },
		{ "/tmp/magic/tmp/own", 0, ELOOP },
	};
	struct dsec_id id = sandbox_make(e->d);
	struct outside outside;
	char script[1024];

	if (!outside_make(&outside))
		return;
	(void)snprintf(
		script, sizeof script,
		"cd /tmp; printf own >own; ln -s %s leaf; ln -s %s middle;"
		"ln -s ../../../../../.. up; ln -s nowhere dangling; ln -s /tmp/own absolute;"
		"ln -s loop loop; ln -s loops/y loops; ln -s /tmp folder;"
		"ln -s /proc/self/root magic",
		outside.file, outside.folder);
	auto_ran struct ran made = shell_run(e->d, id, script);

	expect(ran_exited(&made, 0));
	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		auto_filed struct filed filed = file_read(e->d, id, rows[i].path, rows[i].flags);

		if (!expect(rows[i].error ? filed_failed(&filed, rows[i].error) :
					    filed_says(&filed, "own")))
			note("%s", rows[i].path);
		expect(!holds(&filed, secret));
	}
	sandbox_end(e->d, id);
	outside_check(&outside);
}

static void writes_over_links_stay_inside(struct engine *e)
{
	static const struct {
		const char *path;
		uint32_t flags;
		int error;
	} rows[] = {
		{ "/tmp/leaf", 0, ENOENT }, /* its folder is not there */
		{ "/tmp/middle/secret", 0, ENOENT },
		{ "/tmp/dangling", 0, 0 }, /* makes what it names, inside */
		{ "/tmp/dangling", DSEC_FILE_NO_LINKS, ELOOP },
		{ "/tmp/loop", 0, ELOOP },
		{ "/proc/self/root/tmp/a", 0, ELOOP },
		{ "/tmp/magic/tmp/a", 0, ELOOP },
		{ "/tmp/fd", 0, EOPNOTSUPP }, /* what it shows is no name in proc */
	};
	struct dsec_id id = sandbox_make(e->d);
	struct outside outside;
	char script[1024];

	if (!outside_make(&outside))
		return;
	(void)snprintf(script, sizeof script,
		       "cd /tmp; ln -s %s leaf; ln -s %s middle; ln -s nowhere dangling;"
		       "ln -s loop loop; ln -s /proc/self/root magic; ln -s /proc/self/fd/1 fd",
		       outside.file, outside.folder);
	auto_ran struct ran made = shell_run(e->d, id, script);

	expect(ran_exited(&made, 0));
	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		auto_filed struct filed filed = file_run(
			e->d, id,
			FILE_OPTS(.verb = DSEC_FILE_WRITE, .flags = rows[i].flags,
				  .path = bytes_of(rows[i].path), .input = bytes_of("evil")));

		if (!expect(rows[i].error ? filed_failed(&filed, rows[i].error) :
					    filed_well(&filed)))
			note("%s", rows[i].path);
	}
	auto_ran struct ran after =
		shell_run(e->d, id, "cd /tmp; cat nowhere; readlink dangling; ls -A | wc -l");

	expect(ran_says(&after, "evilnowhere\n7\n"));
	sandbox_end(e->d, id);
	outside_check(&outside);
}

/* User bug 45: a link in a workspace, and who downloads the workspace by it. */
static void a_planted_link_is_refused_where_none_are_wanted(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran made = shell_run(
		e->d, id,
		"mkdir /tmp/w; cd /tmp/w; ln -s /etc x; echo a >--checkpoint=1; echo b >a");
	auto_filed struct filed refused =
		file_read(e->d, id, "/tmp/w/x/passwd", DSEC_FILE_NO_LINKS);
	auto_filed struct filed inside = file_read(e->d, id, "/tmp/w/x/passwd", 0);
	auto_filed struct filed option = file_read(e->d, id, "/tmp/w/--checkpoint=1", 0);
	auto_filed struct filed tar = file_read(e->d, id, "/tmp/w", DSEC_FILE_TAR);
	auto_filed struct filed own = file_read(e->d, id, "/etc/passwd", 0);

	expect(ran_exited(&made, 0));
	expect(filed_failed(&refused, ELOOP) && !refused.bytes);
	/* Without that wish it is the sandbox's own file, never the host's. */
	expect(filed_well(&inside) && filed_well(&own) && inside.bytes == own.bytes &&
	       !memcmp(inside.data, own.data, own.bytes));
	expect(filed_says(&option, "a\n"));
	/* In an archive it is a link, whose target is not read. */
	expect(filed_well(&tar) && !holds(&tar, "root:"));
	sandbox_end(e->d, id);
}

/* ---- races ---- */

static bool racer_start(struct engine *e, struct dsec_id id, const char *attack,
			const char *argument, int64_t *ret)
{
	const struct command c = { .argv = { "attack", attack, argument } };
	double end = clock_ms() + WAIT_MS_MAX;
	bool begun = false;

	*ret = command_start(e->d, id, &c, NULL);
	while (!begun && clock_ms() < end) {
		auto_filed struct filed filed = file_verb(e->d, id, DSEC_FILE_STAT, "/tmp/w/link");
		auto_filed struct filed other = file_verb(e->d, id, DSEC_FILE_STAT, "/tmp/w");

		begun = other.status.code == DSEC_OK;
	}
	return expect(begun);
}

static void names_that_are_swapped_meanwhile_never_lead_outside(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran decoy =
		shell_run(e->d, id, "mkdir -m 777 /tmp/out; printf outside >/tmp/out/secret");
	unsigned good = 0, lost = 0;
	struct outside outside;
	char target[128];
	int64_t racer;

	/* From inside the root the host's folder is not there; a link of one's own is. */
	if (!outside_make(&outside) || !racer_start(e, id, "swap-names", "/tmp/out", &racer))
		return;
	(void)snprintf(target, sizeof target, "/proc/1/root%s", outside.file);
	for (unsigned i = 0; i < ROUNDS; i++) {
		auto_filed struct filed read =
			file_read(e->d, id, "/tmp/w/dir/secret", DSEC_FILE_NO_LINKS);
		auto_filed struct filed write = file_run(
			e->d, id,
			FILE_OPTS(.verb = DSEC_FILE_WRITE, .flags = DSEC_FILE_NO_LINKS,
				  .path = bytes_of("/tmp/w/dir/evil"), .input = bytes_of("evil")));

		expect(!holds(&read, "outside") && !holds(&read, secret));
		expect(!read.status.code || read.status.error == ELOOP ||
		       read.status.error == ENOENT || read.status.error == ENOTDIR ||
		       read.status.error == EAGAIN);
		good += !write.status.code;
		lost += write.status.code != 0;
	}
	auto_ran struct ran after = shell_run(e->d, id, "ls -A /tmp/out; cat /tmp/out/secret");

	note("%u writes went through, %u met a link", good, lost);
	expect(good && lost);
	expect(ran_says(&after, "secret\noutside"));
	sandbox_end(e->d, id);
	outside_check(&outside);
}

static void a_name_that_changes_its_kind_meanwhile_blocks_nobody(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct outside outside;
	int64_t racer;

	if (!outside_make(&outside) || !racer_start(e, id, "swap-kinds", outside.file, &racer))
		return;
	for (unsigned i = 0; i < ROUNDS; i++) {
		auto_filed struct filed read = file_read(e->d, id, "/tmp/w/file", 0);
		auto_filed struct filed write = file_write(e->d, id, "/tmp/w/file", "inside");

		expect(read.status.code ? !read.bytes : !read.bytes || holds(&read, "inside"));
		expect(!holds(&read, secret));
		expect(read.ms < WAIT_MS_MAX && write.ms < WAIT_MS_MAX);
	}
	sandbox_end(e->d, id);
	outside_check(&outside);
}

static void archives_are_put_where_names_are_swapped(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran made = shell_run(
		e->d, id, "mkdir -m 777 /tmp/out; mkdir -p /tmp/s/dir; echo evil >/tmp/s/dir/evil");
	auto_filed struct filed tar = file_read(e->d, id, "/tmp/s", DSEC_FILE_TAR);
	unsigned good = 0, lost = 0;
	int64_t racer;

	expect(ran_exited(&made, 0) && filed_well(&tar));
	if (!racer_start(e, id, "swap-names", "/tmp/out", &racer))
		return;
	for (unsigned i = 0; i < ROUNDS / 4; i++) {
		auto_filed struct filed put = file_run(
			e->d, id,
			FILE_OPTS(.verb = DSEC_FILE_WRITE, .flags = DSEC_FILE_TAR,
				  .path = bytes_of("/tmp/w"), .input = { tar.data, tar.bytes }));

		good += filed_well(&put) && !put.result.left_out;
		lost += put.result.left_out > 0;
	}
	auto_ran struct ran after = shell_run(e->d, id, "ls -A /tmp/out");

	note("%u archives went in whole, %u met a link", good, lost);
	expect(good && lost);
	expect(ran_says(&after, ""));
	sandbox_end(e->d, id);
}

/* E28; each kind of entry by itself: tests/unit/files. */
static void an_attackers_archive_touches_nothing_but_its_folder(struct engine *e)
{
	static const struct tar_entry entries[] = {
		{ .name = "../evil", .content = "evil" },
		{ .name = "/tmp/evil", .content = "evil" },
		{ .name = "link", .type = '2', .link = "/tmp" },
		{ .name = "link/evil", .content = "evil" },
		{ .name = "hard", .type = '1', .link = "../precious" },
		{ .name = "device", .type = '4' },
		{ .name = "--checkpoint-action=exec=sh", .content = "name" },
		{ .name = "su", .mode = 04755, .content = "su" },
		{ .name = "su", .mode = 04755, .content = "again" },
	};
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran made = shell_run(e->d, id, "mkdir /tmp/t; printf keep >/tmp/precious");
	struct tar tar = { 0 };

	for (unsigned i = 0; i < sizeof entries / sizeof *entries; i++)
		tar_add(&tar, &entries[i]);
	tar_end(&tar);
	auto_filed struct filed put =
		file_run(e->d, id,
			 FILE_OPTS(.verb = DSEC_FILE_WRITE, .flags = DSEC_FILE_TAR,
				   .path = bytes_of("/tmp/t"), .input = { tar.bytes, tar.count }));
	auto_ran struct ran after = shell_run(
		e->d, id, "cd /tmp; ls -A . t; cat precious t/su; stat -c ' %h %a' precious t/su");

	expect(ran_exited(&made, 0));
	expect(filed_well(&put) && put.result.left_out == 5 && put.row_count == 7);
	for (unsigned i = 0; i < 6; i++)
		expect((i == 2) == !filed_row(&put, entries[i].name));
	expect(ran_says(&after, ".:\nprecious\nt\n\nt:\n--checkpoint-action=exec=sh\nlink\nsu\n"
				"keepagain 1 644\n 1 755\n"));
	tar_done(&tar);
	sandbox_end(e->d, id);
}

/* ---- what is no file, or has no end ---- */

static void what_is_no_file_is_refused_at_once(struct engine *e)
{
	enum { MASKED = -1 }; /* an empty file lies over it, where the host has one */
	static const struct {
		const char *path;
		int errors[2];
	} rows[] = {
		{ "/tmp/fifo", { EMEDIUMTYPE } },	 { "/tmp/socket", { EMEDIUMTYPE } },
		{ "/dev/zero", { EMEDIUMTYPE } },	 { "/dev/null", { EMEDIUMTYPE } },
		{ "/dev/tty", { EMEDIUMTYPE, ENOENT } }, { "/dev/ptmx", { EMEDIUMTYPE, ENOENT } },
		{ "/proc/kmsg", { EPERM, EACCES } },	 { "/proc/kcore", { MASKED, ENOENT } },
		{ "/tmp/zero", { EMEDIUMTYPE } },
	};
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran made = shell_run(
		e->d, id, "cd /tmp; mkfifo fifo; ln -s /dev/zero zero; attack socket socket; :");

	expect(ran_exited(&made, 0));
	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		auto_filed struct filed read = file_read(e->d, id, rows[i].path, 0);
		auto_filed struct filed write = file_write(e->d, id, rows[i].path, "x");

		if (rows[i].errors[0] == MASKED && !read.status.code)
			expect(read.bytes == 0);
		else if (!expect(read.status.code && (read.status.error == rows[i].errors[0] ||
						      read.status.error == rows[i].errors[1])))
			note("%s: error %d step %s", rows[i].path, read.status.error,
			     read.status.step);
		expect(write.status.code && read.ms < WAIT_MS_MAX && write.ms < WAIT_MS_MAX);
	}
	sandbox_end(e->d, id);
}

static void a_file_that_grows_for_ever_is_read_to_where_it_was(struct engine *e)
{
	const struct command grow = { .argv = { "attack", "grow", "/tmp/endless" } };
	struct dsec_id id = sandbox_make(e->d);
	int64_t ticket = command_start(e->d, id, &grow, NULL);

	(void)ticket;
	for (int i = 0; i < 10; i++) {
		auto_filed struct filed read = file_read(e->d, id, "/tmp/endless", 0);
		auto_filed struct filed tar = file_read(e->d, id, "/tmp", DSEC_FILE_TAR);

		expect(read.status.error == ENOENT || (filed_well(&read) && read.ms < WAIT_MS_MAX));
		expect(filed_well(&tar) && tar.ms < WAIT_MS_MAX);
		expect(read.bytes <= 64 << 20 && tar.bytes <= 64 << 20);
	}
	sandbox_end(e->d, id);
}

static void a_terabyte_of_holes_costs_a_few_bytes(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran made = shell_run(
		e->d, id,
		"mkdir /tmp/h; cd /tmp/h; printf end | dd of=big bs=1M seek=1000000 2>&-");
	auto_filed struct filed tar = file_read(e->d, id, "/tmp/h", DSEC_FILE_TAR);
	auto_filed struct filed put = file_run(
		e->d, id,
		FILE_OPTS(.verb = DSEC_FILE_WRITE, .flags = DSEC_FILE_TAR | DSEC_FILE_PARENTS,
			  .path = bytes_of("/tmp/g"), .input = { tar.data, tar.bytes }));
	auto_ran struct ran after = shell_run(
		e->d, id, "cd /tmp/g; stat -c %s big; tail -c 3 big; du -k big | cut -f1");

	expect(ran_exited(&made, 0));
	expect(filed_well(&tar) && tar.bytes < 1 << 20 && tar.ms < WAIT_MS_MAX);
	expect(filed_well(&put));
	expect(ran_says(&after, "1048576000003\nend4\n"));
	sandbox_end(e->d, id);
}

/* ---- names ---- */

static void names_are_bytes(struct engine *e)
{
	char longest[NAME_MAX + 1], path[NAME_MAX + 16];
	const char *names[] = {
		"new\nline", "\033[31mred\007", "inv\377\200alid", "-rf", " ", "--", "*", longest
	};
	struct dsec_id id = sandbox_make(e->d);

	memset(longest, 'n', NAME_MAX);
	longest[NAME_MAX] = 0;
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		(void)snprintf(path, sizeof path, "/tmp/%s", names[i]);
		auto_filed struct filed written = file_write(e->d, id, path, names[i]);
		auto_filed struct filed again = file_read(e->d, id, path, 0);

		expect(filed_well(&written) && filed_says(&again, names[i]));
	}
	auto_filed struct filed list = file_verb(e->d, id, DSEC_FILE_LIST, "/tmp");
	auto_filed struct filed tar = file_read(e->d, id, "/tmp", DSEC_FILE_TAR);
	auto_filed struct filed put = file_run(
		e->d, id,
		FILE_OPTS(.verb = DSEC_FILE_WRITE, .flags = DSEC_FILE_TAR | DSEC_FILE_PARENTS,
			  .path = bytes_of("/tmp/copy"), .input = { tar.data, tar.bytes }));
	auto_filed struct filed copy = file_verb(e->d, id, DSEC_FILE_LIST, "/tmp/copy");

	expect(filed_well(&list) && list.row_count == 8);
	expect(filed_well(&put) && !put.result.left_out && copy.row_count == 8);
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		if (!expect(filed_row(&list, names[i]) && filed_row(&copy, names[i])))
			note("name %u", i);
	(void)strcpy(path, "/tmp/");
	memset(path + 5, 'n', NAME_MAX + 1);
	path[NAME_MAX + 6] = 0;
	auto_filed struct filed longer = file_write(e->d, id, path, "x");

	expect(filed_failed(&longer, ENAMETOOLONG));
	sandbox_end(e->d, id);
}

/* ---- the helper ---- */

/* E33: what the platform runs is not the sandbox's to change, before it runs or while it does. */
static void the_helper_is_not_the_sandboxs(struct engine *e)
{
	const struct command touch = { .argv = { "attack", "touch-helper" } };
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran spoil = shell_run(
		e->d, id,
		"echo /tmp/evil.so >/etc/ld.so.preload; mkdir -p /usr/lib/x86_64-linux-gnu/gconv;"
		"echo 'module UTF-8// INTERNAL /tmp/evil 1'"
		" >/usr/lib/x86_64-linux-gnu/gconv/gconv-modules; echo x >/tmp/evil.so;"
		"echo x >/tmp/x; chmod 755 /tmp/evil.so");
	int64_t ticket = dsec_write(e->d, NULL, id, FILE_OPTS(.path = bytes_of("/tmp/held")));
	auto_ran struct ran touched = command_run(e->d, id, &touch);
	auto_filed struct filed tar = file_read(e->d, id, "/tmp", DSEC_FILE_TAR);

	expect(ran_exited(&spoil, 0));
	expect(ran_says(&touched, "done\n"));
	expect(filed_well(&tar));
	expect(input_give(e->d, ticket, 0, (struct dsec_bytes){ 0 }).code == DSEC_OK);
	expect(ticket_end(e->d, ticket).code == DSEC_OK);
	sandbox_end(e->d, id);
}

static void a_helper_that_is_killed_or_stopped_inside_is_said(struct engine *e)
{
	const struct command killing = { .argv = { "attack", "touch-helper", "9" } };
	const struct command stopping = { .argv = { "attack", "touch-helper", "19" } };
	struct dsec_id id = sandbox_make(e->d);
	int64_t ticket = dsec_write(e->d, NULL, id, FILE_OPTS(.path = bytes_of("/tmp/a")));
	auto_ran struct ran killed = command_run(e->d, id, &killing);
	struct dsec_status status = ticket_end(e->d, ticket);

	expect(ran_says(&killed, "done\n"));
	expect(status.code == DSEC_FAILED && status.blame == DSEC_BLAME_GUEST &&
	       !strcmp(status.step, "file.helper"));
	ticket = dsec_write(e->d, NULL, id, FILE_OPTS(.path = bytes_of("/tmp/a")));
	auto_ran struct ran stopped = command_run(e->d, id, &stopping);

	expect(ran_says(&stopped, "done\n"));
	expect(input_give(e->d, ticket, 0, (struct dsec_bytes){ 0 }).code == DSEC_OK);
	expect(dsec_cancel(e->d, ticket) == 0);
	/* It was to take effect, and nobody can say whether it has: within the grace, not later. */
	expect(ticket_end(e->d, ticket).code == DSEC_UNKNOWN);
	auto_filed struct filed next = file_write(e->d, id, "/tmp/b", "b");

	expect(filed_well(&next));
	expect(until(WAIT_MS_MAX, engine_running(e, "dsec-file") == 0));
	sandbox_end(e->d, id);
}

static void attackers_of_what_enters_cost_one_operation_each(struct engine *e)
{
	static const char *const attacks[][2] = { { "enter", NULL }, { "signal", "9" } };

	for (unsigned a = 0; a < 2; a++) {
		const struct command c = { .argv = { "attack", attacks[a][0], attacks[a][1] } };
		struct dsec_id id = sandbox_make(e->d);
		unsigned good = 0;

		expect(command_start(e->d, id, &c, NULL) >= 0);
		for (unsigned i = 0; i < 200; i++) {
			auto_filed struct filed write = file_write(e->d, id, "/tmp/a", "whole");
			auto_filed struct filed read = file_read(e->d, id, "/tmp/a", 0);

			expect(write.ms < WAIT_MS_MAX && read.ms < WAIT_MS_MAX);
			expect(!read.bytes || (read.bytes == 5 && !memcmp(read.data, "whole", 5)));
			if (!expect(!write.status.code || write.status.blame == DSEC_BLAME_GUEST))
				(void)filed_well(&write);
			good += !write.status.code;
		}
		note("%s: %u of 200 writes went through", attacks[a][0], good);
		sandbox_end(e->d, id);
	}
}

static const struct claim claims[] = {
	CLAIM(links_lead_nowhere_but_inside),
	CLAIM(writes_over_links_stay_inside),
	CLAIM(a_planted_link_is_refused_where_none_are_wanted),
	CLAIM(names_that_are_swapped_meanwhile_never_lead_outside),
	CLAIM(a_name_that_changes_its_kind_meanwhile_blocks_nobody),
	CLAIM(archives_are_put_where_names_are_swapped),
	CLAIM(an_attackers_archive_touches_nothing_but_its_folder),
	CLAIM(what_is_no_file_is_refused_at_once),
	CLAIM(a_file_that_grows_for_ever_is_read_to_where_it_was),
	CLAIM(a_terabyte_of_holes_costs_a_few_bytes),
	CLAIM(names_are_bytes),
	CLAIM(the_helper_is_not_the_sandboxs),
	CLAIM(a_helper_that_is_killed_or_stopped_inside_is_said),
	CLAIM(attackers_of_what_enters_cost_one_operation_each),
};

static const char *const arguments[] = { "--sandboxes-max", "64", "--shards", "2", NULL };
static const struct suite suites[] = { SUITE("sandbox-files", claims, .arguments = arguments) };

int main(int argc, char **argv)
{
	image_add(ATTACK_PATH, "attack");
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
