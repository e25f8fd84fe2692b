/*
 * `dsec cp`: files and folders into a sandbox, and out of it. Called by main.c. Must hold: what is
 * written here takes its place whole or not at all, file by file, and what is no file is never
 * replaced by one; names that a sandbox chose never lead outside the folder that was given.
 */
#include "sdk/cli/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/image.h"
#include "sdk/cli/remote.h"
#include "sdk/cli/streams.h"
#include "sdk/cli/unpack.h"
#include "sdk/cli/verbs.h"

enum { CHUNK_BYTES = 256 << 10 };

/* "folder/name"; free() it. */
static char *path_join(const char *folder, struct dsec_bytes name)
{
	const size_t bytes = strlen(folder);
	const char *slash = bytes && folder[bytes - 1] == '/' ? "" : "/";
	char *path = NULL;

	if (asprintf(&path, "%s%s%.*s", folder, slash, (int)name.bytes, (const char *)name.data) <
	    0)
		return NULL;
	return path;
}

static int no_memory(struct session *session)
{
	return session_fail_error(session, -ENOMEM, "request", strerror(ENOMEM));
}

static int local_fail(struct session *session, const char *path, int r)
{
	char text[512];

	(void)snprintf(text, sizeof(text), "%.400s: %s", path, strerror(-r));
	return session_fail_error(session, r, "local", text);
}

/* ---- into a sandbox ---- */

/* Waits for what was asked; the last event's status. */
static int last_take(struct session *session, int64_t ticket, struct dsec_status *ret)
{
	struct dsec_event *event;
	bool last = false;
	int r = ticket < 0 ? (int)ticket : 0;

	while (r == 0 && !last) {
		r = dsec_wait(session->d, ticket, -1, &event);
		if (r < 0)
			break;
		last = event->flags & DSEC_LAST;
		*ret = event->status;
		if (event->kind == DSEC_EV_ROW && event->body)
			remote_refusal_note(session, event->body);
		dsec_event_free(event);
	}
	return r;
}

/* All of the source; 1: the write ended meanwhile and says why. */
static int source_send(struct session *session, struct image_source *source, int64_t ticket)
{
	auto_free char *chunk = malloc(CHUNK_BYTES);
	uint64_t sent = 0;
	ssize_t n = -ENOMEM;

	while (chunk && (n = image_source_read(source, chunk, CHUNK_BYTES)) >= 0) {
		struct dsec_bytes bytes = { chunk, (size_t)n };
		struct dsec_status status = { 0 };
		int64_t input = dsec_input(session->d, NULL, ticket, sent, bytes);
		int r = last_take(session, input, &status);

		if (r < 0 || status.code)
			return r == -ENOENT || status.code ? 1 : r;
		if (n == 0)
			return 0;
		sent += (uint64_t)n;
	}
	return (int)n;
}

static int send_to(struct session *session, struct image_source *source,
		   const struct remote *remote, struct dsec_file_opts *opts)
{
	struct dsec_call call = session_call(session);
	struct dsec_status status = { 0 };
	char what[REMOTE_WHAT_BYTES];
	int64_t ticket;
	int r, ended;

	opts->path = (struct dsec_bytes){ remote->path, strlen(remote->path) };
	r = image_source_open(source);
	if (r < 0)
		return local_fail(session, source->path, r);
	ticket = dsec_write(session->d, &call, remote->id, opts);
	r = ticket < 0 ? (int)ticket : source_send(session, source, ticket);
	image_source_close(source);
	if (ticket < 0)
		return session_fail_error(session, r, "request", dsec_error(session->d, r));
	if (r < 0) /* a source that ends too soon must not look whole */
		(void)dsec_cancel(session->d, ticket);
	ended = last_take(session, ticket, &status);
	if (r < 0)
		return local_fail(session, source->path ? source->path : "stdin", r);
	if (ended < 0)
		return session_fail_error(session, ended, "connection",
					  dsec_error(session->d, ended));
	return status.code ? session_fail(session, remote_what(remote, "cp to", what), &status) : 0;
}

/* Where it goes: into a folder that is there or is meant to be, else to the place itself. */
static int target_find(struct session *session, const char *from, struct remote *remote,
		       char **ret_path)
{
	const size_t bytes = strlen(remote->path);
	struct dsec_file_row row = { 0 };
	int r = remote_stat(session, remote, &row);

	*ret_path = NULL;
	if (r < 0 && r != -ENOENT)
		return EXIT_TROUBLE;
	if ((r == 0 && row.type == DSEC_FILE_TYPE_FOLDER) || remote->path[bytes - 1] == '/')
		*ret_path = path_join(remote->path, path_last(from));
	else
		*ret_path = strdup(remote->path);
	if (!*ret_path)
		return no_memory(session);
	remote->path = *ret_path;
	return 0;
}

static int copy_in(struct session *session, const char *from, struct remote *remote)
{
	struct image_source source = { .fd = -1, .path = from };
	struct dsec_file_opts opts = remote_opts(session, remote);
	auto_free char *path = NULL;
	struct stat st;
	int status;

	if (!strcmp(from, "-")) {
		source.path = NULL;
		opts.flags = DSEC_FILE_TAR;
		return send_to(session, &source, remote, &opts);
	}
	if (stat(from, &st) < 0)
		return local_fail(session, from, -errno);
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return session_refuse(session, "cp: '%s' is no file and no folder", from);
	status = target_find(session, from, remote, &path);
	if (status)
		return status;
	source.is_folder = S_ISDIR(st.st_mode);
	if (source.is_folder) {
		opts.flags = DSEC_FILE_TAR | DSEC_FILE_PARENTS;
	} else {
		opts.flags = DSEC_FILE_MODE;
		opts.mode = st.st_mode & 0777;
	}
	return send_to(session, &source, remote, &opts);
}

/* ---- out of one ---- */

struct output {
	int fd, error;
};

static void output_write(void *state, const struct dsec_event *event)
{
	struct output *output = state;
	const char *at = event->data;

	for (uint64_t left = event->kind == DSEC_EV_DATA ? event->bytes : 0; left;) {
		ssize_t n = output->error ? -1 : write(output->fd, at, left);

		if (n < 0 && !output->error && errno == EINTR)
			continue;
		if (n < 0) {
			output->error = output->error ? output->error : -errno;
			return;
		}
		at += n;
		left -= (uint64_t)n;
	}
}

static void data_show(void *state, const struct dsec_event *event)
{
	if (event->kind == DSEC_EV_ROW && event->body)
		remote_refusal_note(state, event->body);
	if (event->kind == DSEC_EV_DATA)
		(void)fwrite(event->data, 1, event->bytes, stdout); /* told at the end, by main() */
}

static int64_t read_start(struct session *session, const struct remote *remote, uint32_t flags)
{
	struct dsec_file_opts opts = remote_opts(session, remote);
	struct dsec_call call = session_call(session);

	opts.flags = flags;
	return dsec_read(session->d, &call, remote->id, &opts);
}

/*
 * A file for the contents that nobody sees before it has its place: without a name, so that nothing
 * stays of it whatever ends us; with one where the file system has no such files.
 */
static int beside_open(const char *to, char **ret_name)
{
	const struct dsec_bytes last = path_last(to);
	const size_t bytes = (size_t)((const char *)last.data - to);
	auto_free char *folder = bytes ? strndup(to, bytes) : strdup(".");
	auto_free char *name = NULL;
	int fd;

	if (!folder || asprintf(&name, "%s.dsec-XXXXXX", to) < 0) {
		name = NULL;
		return -ENOMEM;
	}
	fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	if (errno != EOPNOTSUPP && errno != EISDIR)
		return -errno;
	fd = mkostemp(name, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_name = name;
	name = NULL;
	return fd;
}

/* A name beside its place, for rename(): link() replaces nothing. */
static int beside_name(int fd, const char *to, char **ret_name)
{
	auto_free char *name = NULL;
	char from[32];

	if (asprintf(&name, "%s.dsec-%d", to, getpid()) < 0) {
		name = NULL;
		return -ENOMEM;
	}
	(void)snprintf(from, sizeof(from), "/proc/self/fd/%d", fd); /* fits */
	if (linkat(AT_FDCWD, from, AT_FDCWD, name, AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	*ret_name = name;
	name = NULL;
	return 0;
}

/* What is no file here stays what it is, and is written to: a FIFO, a terminal, /dev/null. */
static int through_take(struct session *session, const struct remote *remote, const char *to)
{
	struct output output = { .fd = open(to, O_WRONLY | O_NOCTTY | O_CLOEXEC) };
	char what[REMOTE_WHAT_BYTES];
	int r;

	if (output.fd < 0)
		return local_fail(session, to, -errno);
	r = session_events(session, read_start(session, remote, 0), remote_what(remote, "cp", what),
			   output_write, &output);
	if (close(output.fd) < 0 && output.error == 0)
		output.error = -errno;
	if (output.error)
		return local_fail(session, to, output.error);
	return r < 0 ? EXIT_TROUBLE : 0;
}

static int file_take(struct session *session, const struct remote *remote, const char *to,
		     mode_t mode)
{
	const mode_t mask = umask(0);
	struct output output = { 0 };
	char what[REMOTE_WHAT_BYTES];
	auto_free char *temporary = NULL;
	int r;

	(void)umask(mask); /* asking for it changes it */
	output.fd = beside_open(to, &temporary);
	if (output.fd < 0)
		return local_fail(session, to, output.fd);
	r = session_events(session, read_start(session, remote, 0), remote_what(remote, "cp", what),
			   output_write, &output);
	if (r == 0 && output.error == 0 && fchmod(output.fd, mode & 0777 & ~mask) < 0)
		output.error = -errno;
	if (r == 0 && output.error == 0 && !temporary)
		output.error = beside_name(output.fd, to, &temporary);
	if (close(output.fd) < 0 && output.error == 0)
		output.error = -errno;
	if (r == 0 && output.error == 0 && rename(temporary, to) < 0)
		output.error = -errno;
	if (temporary && (r < 0 || output.error))
		(void)unlink(temporary); /* it may have become the file after all */
	if (output.error)
		return local_fail(session, to, output.error);
	return r < 0 ? EXIT_TROUBLE : 0;
}

static int tree_take(struct session *session, const struct remote *remote, const char *to)
{
	struct stat st;

	if ((mkdir(to, 0777) < 0 && errno != EEXIST) || stat(to, &st) < 0)
		return local_fail(session, to, -errno);
	if (!S_ISDIR(st.st_mode))
		return local_fail(session, to, -ENOTDIR);
	return unpack(session, read_start(session, remote, DSEC_FILE_TAR), to);
}

/* A file: in place of the one that is there, which may be behind a link of the user's. */
static int one_take(struct session *session, const struct remote *remote, const char *to,
		    mode_t mode)
{
	auto_free char *real = realpath(to, NULL);
	struct stat st;

	if (!real && lstat(to, &st) == 0) /* a link to nowhere */
		return local_fail(session, to, -ENOENT);
	if (real && stat(real, &st) == 0 && !S_ISREG(st.st_mode))
		return through_take(session, remote, real);
	return file_take(session, remote, real ? real : to, mode);
}

static int copy_out(struct session *session, const struct remote *remote, const char *to)
{
	const bool is_folder = to[strlen(to) - 1] == '/';
	struct dsec_file_row row = { 0 };
	char what[REMOTE_WHAT_BYTES];
	auto_free char *path = NULL;
	struct stat st;
	int r;

	if (!strcmp(to, "-") && session_refuse_json(session, "an archive"))
		return EXIT_TROUBLE;
	if (!strcmp(to, "-"))
		return session_events(session, read_start(session, remote, DSEC_FILE_TAR),
				      remote_what(remote, "cp", what), data_show, session) < 0 ?
			       EXIT_TROUBLE :
			       0;
	r = remote_stat(session, remote, &row);
	if (r == -ENOENT)
		return local_fail(session, remote_what(remote, "cp", what), r);
	if (r < 0)
		return EXIT_TROUBLE;
	if ((stat(to, &st) == 0 && S_ISDIR(st.st_mode)) || is_folder) {
		const struct dsec_bytes name = path_last(remote->path);

		/* Of what the user typed, never of what the sandbox says. */
		if (name.bytes == 0 || (name.bytes == 1 && !memcmp(name.data, ".", 1)) ||
		    (name.bytes == 2 && !memcmp(name.data, "..", 2)))
			path = strdup(to);
		else
			path = path_join(to, name);
		if (!path)
			return no_memory(session);
		to = path;
	}
	return row.type == DSEC_FILE_TYPE_FOLDER ? tree_take(session, remote, to) :
						   one_take(session, remote, to, row.mode);
}

/* ---- before a program runs ---- */

/* The colon between the two: the target is a path from the root of the sandbox. */
static const char *copy_colon(const char *text)
{
	const char *colon = NULL;

	for (const char *at = strstr(text, ":/"); at; at = strstr(at + 1, ":/"))
		colon = at;
	return colon && colon > text ? colon : NULL;
}

int copies_check(struct session *session)
{
	const struct texts *copies = &session->options->copies;

	for (uint32_t at = 0; at < copies->count; at++) {
		if (!copy_colon(copies->items[at]) || !strncmp(copies->items[at], "-:", 2))
			return session_refuse(session, "--cp-in: '%s' is not SOURCE:/TARGET",
					      copies->items[at]);
	}
	return 0;
}

int copies_make(struct session *session, struct dsec_id sandbox)
{
	const struct texts *copies = &session->options->copies;
	int status = 0;

	(void)setlocale(LC_CTYPE, "C.UTF-8"); /* as in verb_cp() */
	for (uint32_t at = 0; at < copies->count && status == 0; at++) {
		const char *colon = copy_colon(copies->items[at]);
		auto_free char *from =
			strndup(copies->items[at], (size_t)(colon - copies->items[at]));
		struct remote remote = { .id = sandbox, .path = colon + 1 };

		status = from ? copy_in(session, from, &remote) : no_memory(session);
	}
	return status;
}

int verb_cp(const struct options *options)
{
	struct session session = { .options = options };
	struct remote remote;
	const char *from, *to;
	int status;

	if (options->argument_count != 2 ||
	    remote_is(options->arguments[0]) == remote_is(options->arguments[1]) ||
	    !*options->arguments[0] || !*options->arguments[1])
		return session_end(&session,
				   session_refuse(&session, "cp: one of SOURCE and TARGET is "
							    "ID:PATH, the other one is not"));
	from = options->arguments[0];
	to = options->arguments[1];
	/* Names are bytes: libarchive passes those of UTF-8 on as they are. */
	(void)setlocale(LC_CTYPE, "C.UTF-8"); /* without it names beyond ASCII have '?' */
	if (session_open(&session, false) < 0)
		return session_end(&session, EXIT_TROUBLE);
	status = remote_find(&session, remote_is(from) ? from : to, &remote);
	if (status == 0)
		status = remote_is(from) ? copy_out(&session, &remote, to) :
					   copy_in(&session, from, &remote);
	if (status == 0 && strcmp(to, "-") != 0)
		status = session_done(&session);
	return session_end(&session, status);
}
