/*
 * Files of sandboxes as clients see them: what was written is read, what a failure says, folders,
 * archives. One engine for all claims; each makes the sandboxes it needs and ends them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/file_client.h"

enum { NAMES = 2500, PAGE = 1000, DEPTH = 3000 };

#define FILE_OPTS(...)                                                                             \
	(&(const struct dsec_file_opts){ .size = sizeof(struct dsec_file_opts), __VA_ARGS__ })

/* ---- content ---- */

static void what_was_written_is_read(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_filed struct filed written = file_write(e->d, id, "/tmp/a", "some text\n");
	auto_filed struct filed again = file_read(e->d, id, "/tmp/a", 0);
	auto_filed struct filed empty = file_write(e->d, id, "tmp/empty", "");
	auto_filed struct filed nothing = file_read(e->d, id, "/tmp/empty", 0);
	auto_ran struct ran inside = shell_run(e->d, id, "stat -c '%a %u %s' /tmp/a /tmp/empty");

	expect(filed_well(&written) && written.result.bytes == 10);
	expect(filed_says(&again, "some text\n") && again.result.bytes == 10);
	expect(filed_well(&empty));
	expect(filed_says(&nothing, ""));
	expect(ran_says(&inside, "644 0 10\n644 0 0\n"));
	sandbox_end(e->d, id);
}

static void a_range_is_read(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_filed struct filed written = file_write(e->d, id, "/tmp/a", "0123456789");
	auto_filed struct filed middle =
		file_run(e->d, id,
			 FILE_OPTS(.verb = DSEC_FILE_READ, .path = bytes_of("/tmp/a"), .offset = 3,
				   .bytes_max = 4));
	auto_filed struct filed beyond = file_run(
		e->d, id,
		FILE_OPTS(.verb = DSEC_FILE_READ, .path = bytes_of("/tmp/a"), .offset = 99));

	expect(filed_well(&written));
	expect(filed_says(&middle, "3456"));
	expect(filed_says(&beyond, ""));
	sandbox_end(e->d, id);
}

static void an_old_file_keeps_its_mode_and_owner_unless_asked(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran made = shell_run(
		e->d, id,
		"echo old >/tmp/a; chmod 751 /tmp/a; chown 7:8 /tmp/a; cp -p /tmp/a /tmp/b");
	auto_filed struct filed kept = file_write(e->d, id, "/tmp/a", "new");
	auto_filed struct filed changed = file_run(
		e->d, id,
		FILE_OPTS(.verb = DSEC_FILE_WRITE, .path = bytes_of("/tmp/b"),
			  .flags = DSEC_FILE_MODE, .mode = 0600, .input = bytes_of("new")));
	auto_filed struct filed fresh =
		file_run(e->d, id,
			 FILE_OPTS(.verb = DSEC_FILE_WRITE, .path = bytes_of("/tmp/c"),
				   .flags = DSEC_FILE_MODE, .mode = 04755, .user = "55:66",
				   .input = bytes_of("")));
	auto_ran struct ran inside =
		shell_run(e->d, id, "cd /tmp; stat -c '%n %a %u %g %s' a b c; ls -A | wc -l");

	expect(ran_exited(&made, 0));
	expect(filed_well(&kept) && filed_well(&changed) && filed_well(&fresh));
	expect(ran_says(&inside, "a 751 7 8 3\nb 600 7 8 3\nc 4755 55 66 0\n3\n"));
	sandbox_end(e->d, id);
}

static void append_adds_once_per_request_id(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct dsec_call call = { .size = sizeof call };
	auto_filed struct filed first = file_write(e->d, id, "/tmp/log", "one\n");
	struct dsec_file_opts opts = *FILE_OPTS(.path = bytes_of("/tmp/log"),
						.flags = DSEC_FILE_APPEND,
						.input = bytes_of("two\n"));
	uint64_t ms = 0;

	/* Of this moment by the engine's clock, as near as a client can know it. */
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	for (int i = 0; i < 6; i++)
		call.request_id[i] = (uint8_t)(ms >> (40 - 8 * i));
	call.request_id[6] = 0x70;
	call.request_id[15] = 1;
	for (int i = 0; i < 3; i++) {
		auto_filed struct filed again =
			filed_wait(e->d, dsec_write(e->d, &call, id, &opts), false);

		expect(filed_well(&again));
	}
	auto_filed struct filed all = file_read(e->d, id, "/tmp/log", 0);

	expect(filed_well(&first));
	expect(filed_says(&all, "one\ntwo\n"));
	sandbox_end(e->d, id);
}

/* ---- failures ---- */

static void what_fails_says_its_errno_step_and_whose_fault(struct engine *e)
{
	static const struct {
		uint32_t verb, flags;
		const char *path, *to, *user;
		int error;
		const char *step;
	} rows[] = {
		{ DSEC_FILE_READ, 0, "/tmp/none", NULL, NULL, ENOENT, "file.open" },
		{ DSEC_FILE_READ, 0, "/tmp", NULL, NULL, EISDIR, "file.open" },
		{ DSEC_FILE_READ, 0, "/tmp/loop", NULL, NULL, ELOOP, "file.open" },
		{ DSEC_FILE_READ, 0, "/tmp/a/b", NULL, NULL, ENOTDIR, "file.open" },
		{ DSEC_FILE_READ, 0, "/tmp/secret", NULL, "9:9", EACCES, "file.open" },
		{ DSEC_FILE_READ, 0, "/tmp/fifo", NULL, NULL, EMEDIUMTYPE, "file.open" },
		{ DSEC_FILE_READ, 0, "/tmp/a", NULL, "nobody-at-all", ENOENT, "file.user" },
		{ DSEC_FILE_WRITE, 0, "/tmp", NULL, NULL, EISDIR, "file.open" },
		{ DSEC_FILE_WRITE, 0, "/", NULL, NULL, EISDIR, "file.path" },
		{ DSEC_FILE_WRITE, 0, "/none/a", NULL, NULL, ENOENT, "file.path" },
		{ DSEC_FILE_WRITE, 0, "/etc/a", NULL, "9:9", EACCES, "file.open" },
		{ DSEC_FILE_WRITE, DSEC_FILE_EXCLUSIVE, "/tmp/a", NULL, NULL, EEXIST, "file.open" },
		{ DSEC_FILE_MKDIR, 0, "/tmp", NULL, NULL, EEXIST, "file.mkdir" },
		{ DSEC_FILE_REMOVE, 0, "/tmp/none", NULL, NULL, ENOENT, "file.remove" },
		{ DSEC_FILE_REMOVE, 0, "/tmp/full", NULL, NULL, ENOTEMPTY, "file.remove" },
		{ DSEC_FILE_REMOVE, DSEC_FILE_RECURSIVE, "/", NULL, NULL, EBUSY, "file.path" },
		{ DSEC_FILE_RENAME, 0, "/tmp/a", "/proc/a", NULL, EXDEV, "file.rename" },
		{ DSEC_FILE_RENAME, DSEC_FILE_EXCLUSIVE, "/tmp/a", "/tmp/secret", NULL, EEXIST,
		  "file.rename" },
		{ DSEC_FILE_LIST, 0, "/tmp/a", NULL, NULL, ENOTDIR, "file.open" },
		{ DSEC_FILE_STAT, 0, "/tmp/none", NULL, NULL, ENOENT, "file.open" },
	};
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran made =
		shell_run(e->d, id,
			  "cd /tmp; echo a >a; echo s >secret; chmod 600 secret; ln -s loop loop;"
			  "mkfifo fifo;"
			  "mkdir -p full/of");

	expect(ran_exited(&made, 0));
	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct dsec_file_opts opts =
			*FILE_OPTS(.verb = rows[i].verb, .flags = rows[i].flags,
				   .path = bytes_of(rows[i].path), .user = rows[i].user);

		if (rows[i].to)
			opts.to = bytes_of(rows[i].to);
		if (opts.verb == DSEC_FILE_WRITE)
			opts.input = bytes_of("x");
		auto_filed struct filed filed = file_run(e->d, id, &opts);

		if (!expect(filed_failed(&filed, rows[i].error) &&
			    !strcmp(filed.status.step, rows[i].step) &&
			    filed.status.blame == DSEC_BLAME_CALLER && !filed.bytes))
			note("%u %s: step %s blame %u", rows[i].verb, rows[i].path,
			     filed.status.step, filed.status.blame);
	}
	auto_ran struct ran after = shell_run(e->d, id, "cd /tmp; ls -A; cat a secret");

	expect(ran_says(&after, "a\nfifo\nfull\nloop\nsecret\na\ns\n"));
	sandbox_end(e->d, id);
}

static void impossible_requests_are_refused_by_field(struct engine *e)
{
	const struct dsec_bytes path = bytes_of("/tmp/a"), text = bytes_of("x");
	const struct {
		struct dsec_file_opts opts;
		const char *step;
	} rows[] = {
		{ { .verb = DSEC_FILE_STAT, .flags = DSEC_FILE_TAR, .path = path }, "file.flags" },
		{ { .verb = DSEC_FILE_STAT, .flags = 1 << 20, .path = path }, "file.flags" },
		{ { .verb = DSEC_FILE_MKDIR, .mode = 0700, .path = path }, "file.mode" },
		{ { .verb = DSEC_FILE_STAT, .path = { "/tmp/\0a", 7 } }, "file.path" },
		{ { .verb = DSEC_FILE_STAT, .path = path, .to = path }, "file.to" },
		{ { .verb = DSEC_FILE_STAT, .path = path, .input = text }, "file.input" },
		{ { .verb = DSEC_FILE_STAT, .path = path, .offset = 1 }, "file.offset" },
	};
	struct dsec_id id = sandbox_make(e->d);

	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct dsec_file_opts opts = rows[i].opts;

		opts.size = sizeof opts;
		auto_filed struct filed filed = file_run(e->d, id, &opts);

		if (!expect(filed.status.code == DSEC_INVALID &&
			    !strcmp(filed.status.step, rows[i].step)))
			note("row %u: code %u step %s", i, filed.status.code, filed.status.step);
	}
	expect(dsec_file(e->d, NULL, id, FILE_OPTS(.path = path)) == -EINVAL);
	expect(dsec_file(e->d, NULL, id, FILE_OPTS(.verb = DSEC_FILE_STAT)) == -EINVAL);
	expect(dsec_read(e->d, NULL, id, FILE_OPTS(.verb = DSEC_FILE_WRITE, .path = path)) ==
	       -EINVAL);
	sandbox_end(e->d, id);
}

/* ---- folders ---- */

static void pages_of_a_list_have_every_name_once_in_order(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran made =
		shell_run(e->d, id,
			  "mkdir /tmp/many; cd /tmp/many; i=0;"
			  "while [ $i -lt 2500 ]; do : >f$((i+10000)); i=$((i+1)); done");
	char after[16] = "";
	uint32_t seen = 0, pages = 0;
	bool more = true;

	expect(ran_exited(&made, 0));
	while (more && pages < 10) {
		auto_filed struct filed page =
			file_run(e->d, id,
				 FILE_OPTS(.verb = DSEC_FILE_LIST, .path = bytes_of("/tmp/many"),
					   .to = bytes_of(after), .limit = PAGE));

		if (!expect(filed_well(&page) && page.row_count))
			break;
		expect(page.result.entries == page.row_count && page.row_count <= PAGE);
		for (uint32_t i = 0; i < page.row_count; i++) {
			char name[16];

			(void)snprintf(name, sizeof name, "f%u", 10000 + seen++);
			expect(!strcmp(page.rows[i].name, name));
		}
		(void)snprintf(after, sizeof after, "%s", page.rows[page.row_count - 1].name);
		more = page.result.more;
		pages++;
	}
	expect(seen == NAMES && pages == 3 && !more);
	sandbox_end(e->d, id);
}

static void stat_and_list_say_what_there_is(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran made = shell_run(
		e->d, id,
		"mkdir /tmp/x; cd /tmp/x; printf 12345 >file; chmod 640 file; ln -s file link;"
		"mkfifo fifo; mkdir folder; chmod 1777 folder; touch -d @1000000000 file");
	auto_filed struct filed list = file_verb(e->d, id, DSEC_FILE_LIST, "/tmp/x");
	auto_filed struct filed stat = file_verb(e->d, id, DSEC_FILE_STAT, "/tmp/x/link");
	auto_filed struct filed link =
		file_run(e->d, id,
			 FILE_OPTS(.verb = DSEC_FILE_STAT, .flags = DSEC_FILE_NO_FOLLOW,
				   .path = bytes_of("/tmp/x/link")));
	const struct filed_row *row;

	expect(ran_exited(&made, 0));
	expect(filed_well(&list) && list.row_count == 4);
	row = filed_row(&list, "file");
	if (expect(row))
		expect(row->row.type == DSEC_FILE_TYPE_FILE && row->row.mode == 0640 &&
		       row->row.bytes == 5 && row->row.links == 1 &&
		       row->row.mtime_ns == 1000000000000000000);
	row = filed_row(&list, "link");
	expect(row && row->row.type == DSEC_FILE_TYPE_LINK && !strcmp(row->target, "file"));
	row = filed_row(&list, "fifo");
	expect(row && row->row.type == DSEC_FILE_TYPE_FIFO);
	row = filed_row(&list, "folder");
	expect(row && row->row.type == DSEC_FILE_TYPE_FOLDER && row->row.mode == 01777);
	expect(filed_well(&stat) && stat.row_count == 1 &&
	       stat.rows[0].row.type == DSEC_FILE_TYPE_FILE);
	expect(filed_well(&link) && link.row_count == 1 &&
	       link.rows[0].row.type == DSEC_FILE_TYPE_LINK);
	sandbox_end(e->d, id);
}

static void folders_are_made_renamed_and_removed(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_filed struct filed made =
		file_run(e->d, id,
			 FILE_OPTS(.verb = DSEC_FILE_MKDIR, .flags = DSEC_FILE_PARENTS,
				   .path = bytes_of("/tmp/a/b/c")));
	auto_filed struct filed again = file_run(
		e->d, id,
		FILE_OPTS(.verb = DSEC_FILE_MKDIR, .flags = DSEC_FILE_PARENTS | DSEC_FILE_MODE,
			  .mode = 0700, .path = bytes_of("/tmp/a/b/c/")));
	auto_filed struct filed moved =
		file_run(e->d, id,
			 FILE_OPTS(.verb = DSEC_FILE_RENAME, .path = bytes_of("/tmp/a/b"),
				   .to = bytes_of("/tmp/d")));
	auto_ran struct ran inside = shell_run(e->d, id, "cd /tmp; stat -c '%a' d/c; ls a | wc -l");
	auto_filed struct filed removed =
		file_run(e->d, id,
			 FILE_OPTS(.verb = DSEC_FILE_REMOVE, .flags = DSEC_FILE_RECURSIVE,
				   .path = bytes_of("/tmp/d")));
	auto_filed struct filed empty = file_verb(e->d, id, DSEC_FILE_REMOVE, "/tmp/a");
	auto_ran struct ran after = shell_run(e->d, id, "ls -A /tmp | wc -l");

	expect(filed_well(&made) && filed_well(&again) && filed_well(&moved));
	expect(ran_says(&inside, "700\n0\n"));
	expect(filed_well(&removed) && removed.result.entries == 2);
	expect(filed_well(&empty) && ran_says(&after, "0\n"));
	sandbox_end(e->d, id);
}

static void paths_longer_than_any_and_folders_deeper_than_any_work(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_free char *path = malloc(4 * DEPTH + 16);
	auto_free char *file = malloc(4 * DEPTH + 16);

	(void)strcpy(path, "/tmp");
	for (unsigned i = 0; i < DEPTH; i++)
		(void)strcpy(path + 4 + 4 * i, i % 2 ? "/odd" : "/evn");
	(void)sprintf(file, "%s/file", path);
	auto_filed struct filed made =
		file_run(e->d, id,
			 FILE_OPTS(.verb = DSEC_FILE_MKDIR, .flags = DSEC_FILE_PARENTS,
				   .path = bytes_of(path)));
	auto_filed struct filed written = file_write(e->d, id, file, "deep");
	auto_filed struct filed again = file_read(e->d, id, file, 0);
	auto_filed struct filed removed =
		file_run(e->d, id,
			 FILE_OPTS(.verb = DSEC_FILE_REMOVE, .flags = DSEC_FILE_RECURSIVE,
				   .path = bytes_of("/tmp/evn")));
	auto_ran struct ran after = shell_run(e->d, id, "ls -A /tmp | wc -l");

	expect(filed_well(&made) && filed_well(&written));
	expect(filed_says(&again, "deep"));
	expect(filed_well(&removed) && removed.result.entries == DEPTH + 1);
	expect(ran_says(&after, "0\n"));
	sandbox_end(e->d, id);
}

static bool change_comes(struct engine *e, int64_t ticket, const char *name, uint32_t change)
{
	double end = clock_ms() + 15000;

	while (clock_ms() < end) {
		const struct dsec_file_row *row;
		struct dsec_event *event;
		bool found;

		if (dsec_wait(e->d, ticket, 1000, &event) < 0)
			continue;
		row = event->kind == DSEC_EV_ROW ? event->body : NULL;
		found = row && row->name.bytes == strlen(name) &&
			!memcmp(row->name.data, name, row->name.bytes) &&
			(change ? row->change & change : !row->change);
		dsec_event_free(event);
		if (found)
			return true;
	}
	return false;
}

static void changes_of_a_folder_are_told_until_it_goes_or_nobody_asks(struct engine *e)
{
	const struct dsec_file_opts *watch =
		FILE_OPTS(.verb = DSEC_FILE_WATCH, .path = bytes_of("/tmp/w"));
	struct dsec_id id = sandbox_make(e->d);
	auto_filed struct filed made = file_verb(e->d, id, DSEC_FILE_MKDIR, "/tmp/w");
	int64_t ticket = dsec_file(e->d, NULL, id, watch);

	expect(filed_well(&made) && change_comes(e, ticket, "", 0));
	auto_ran struct ran first = shell_run(e->d, id, "cd /tmp/w; echo a >a; mkdir d; mv a b");

	expect(ran_exited(&first, 0));
	expect(change_comes(e, ticket, "a", DSEC_FILE_CHANGE_CREATED));
	expect(change_comes(e, ticket, "a", DSEC_FILE_CHANGE_CLOSED));
	expect(change_comes(e, ticket, "d", DSEC_FILE_CHANGE_CREATED));
	expect(change_comes(e, ticket, "a", DSEC_FILE_CHANGE_REMOVED));
	expect(change_comes(e, ticket, "b", DSEC_FILE_CHANGE_CREATED));
	/* What was written over the interface appears at once, whole. */
	auto_filed struct filed written = file_write(e->d, id, "/tmp/w/c", "c");

	expect(filed_well(&written) && change_comes(e, ticket, "c", DSEC_FILE_CHANGE_CREATED));
	expect(dsec_cancel(e->d, ticket) == 0);
	expect(ticket_end(e->d, ticket).code == DSEC_CANCELLED);
	ticket = dsec_file(e->d, NULL, id, watch);
	expect(change_comes(e, ticket, "", 0));
	auto_ran struct ran gone = shell_run(e->d, id, "rm -r /tmp/w");

	expect(ran_exited(&gone, 0) && change_comes(e, ticket, "", DSEC_FILE_CHANGE_GONE));
	expect(ticket_end(e->d, ticket).code == DSEC_OK);
	sandbox_end(e->d, id);
}

/* ---- archives ---- */

static bool output_has(const struct ran *ran, const char *text)
{
	const struct dsec_output *out = ran_output(ran, 1);

	return out && memmem(out->head.data, out->head.bytes, text, strlen(text));
}

/* With holes, links, names of one file, attributes and file capabilities. */
static void a_tree_goes_from_one_sandbox_to_another(struct engine *e)
{
	static const char *const look =
		"cd /tmp/t; find . | sort; stat -c '%a %s %Y %h' x/run sparse; readlink x/link;"
		"[ x/run -ef again ] && echo one; touch_root attributes-say;"
		"sha256sum big sparse; du -k sparse | cut -f1";
	struct dsec_id from = sandbox_make(e->d), to = sandbox_make(e->d);
	auto_ran struct ran made =
		shell_run(e->d, from,
			  "mkdir -p /tmp/t/x/y; cd /tmp/t; echo run >x/run; chmod 755 x/run;"
			  "ln -s run x/link; ln x/run again; touch_root attributes-set;"
			  "head -c 3000000 /dev/urandom >big;"
			  "dd if=big of=sparse bs=4096 seek=5000 count=2 2>&-;"
			  "chmod 500 x/y; touch -d @1000000000 x/run sparse; mkfifo x/fifo");
	auto_filed struct filed tar = file_read(e->d, from, "/tmp/t", DSEC_FILE_TAR);
	auto_filed struct filed put = file_run(
		e->d, to,
		FILE_OPTS(.verb = DSEC_FILE_WRITE, .flags = DSEC_FILE_TAR | DSEC_FILE_PARENTS,
			  .path = bytes_of("/tmp/t"), .input = { tar.data, 1 }));

	expect(ran_exited(&made, 0));
	expect(filed_well(&tar) && tar.result.left_out == 1 && tar.row_count == 1);
	expect(tar.row_count && !strcmp(tar.rows[0].name, "x/fifo") &&
	       tar.rows[0].row.reason == DSEC_FILE_REASON_SPECIAL);
	expect(tar.bytes > 3000000 && tar.bytes < 3100000); /* without the hole */
	expect(filed_failed(&put, EBADMSG));		    /* one byte is no archive */
	int64_t ticket = dsec_write(e->d, NULL, to,
				    FILE_OPTS(.flags = DSEC_FILE_TAR, .path = bytes_of("/tmp/t")));

	for (size_t at = 0; at < tar.bytes;) {
		size_t piece = tar.bytes - at < 100000 ? tar.bytes - at : 100000;

		if (!expect(input_give(e->d, ticket, at,
				       (struct dsec_bytes){ tar.data + at, piece })
				    .code == DSEC_OK))
			break;
		at += piece;
	}
	expect(input_give(e->d, ticket, tar.bytes, (struct dsec_bytes){ 0 }).code == DSEC_OK);
	auto_filed struct filed all = filed_wait(e->d, ticket, false);
	auto_ran struct ran gone = shell_run(e->d, from, "rm /tmp/t/x/fifo");
	auto_ran struct ran here = shell_run(e->d, from, look);
	auto_ran struct ran there = shell_run(e->d, to, look);

	expect(filed_well(&all) && !all.row_count && all.result.entries == 8);
	expect(ran_exited(&gone, 0) && ran_exited(&here, 0) && ran_exited(&there, 0));
	expect(output_has(&there, "755 4 1000000000 2\n") && output_has(&there, "\none\n"));
	expect(output_has(&there, "note 010000020004"));
	const struct dsec_output *a = ran_output(&here, 1), *b = ran_output(&there, 1);

	if (!expect(a && b && a->head.bytes == b->head.bytes &&
		    !memcmp(a->head.data, b->head.data, a->head.bytes)))
		note("%.*s\n%.*s", a ? (int)a->head.bytes : 0, a ? (const char *)a->head.data : "",
		     b ? (int)b->head.bytes : 0, b ? (const char *)b->head.data : "");
	sandbox_end(e->d, from);
	sandbox_end(e->d, to);
}

static const struct claim claims[] = {
	CLAIM(what_was_written_is_read),
	CLAIM(a_range_is_read),
	CLAIM(an_old_file_keeps_its_mode_and_owner_unless_asked),
	CLAIM(append_adds_once_per_request_id),
	CLAIM(what_fails_says_its_errno_step_and_whose_fault),
	CLAIM(impossible_requests_are_refused_by_field),
	CLAIM(pages_of_a_list_have_every_name_once_in_order),
	CLAIM(stat_and_list_say_what_there_is),
	CLAIM(folders_are_made_renamed_and_removed),
	CLAIM(paths_longer_than_any_and_folders_deeper_than_any_work),
	CLAIM(changes_of_a_folder_are_told_until_it_goes_or_nobody_asks),
	CLAIM(a_tree_goes_from_one_sandbox_to_another),
};

static const char *const arguments[] = { "--sandboxes-max", "64", "--shards", "2", NULL };
static const struct suite suites[] = { SUITE("files", claims, .arguments = arguments) };

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
