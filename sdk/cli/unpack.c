/*
 * Archives of sandboxes are hostile: whoever made the files wrote the names. Called by copy.c. Must
 * hold: nothing but files, folders and links is made, none through a link or outside the folder
 * (libarchive's secure flags, and the kernel asked by openat2 before), with modes of our umask and
 * without owners.
 */
#include "sdk/cli/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/remote.h"
#include "sdk/cli/values.h"

struct unpacking {
	struct session *session;
	int64_t ticket;
	struct dsec_event *event; /* whose data libarchive reads */
	struct dsec_status status;
	bool over;
	int error;     /* of the connection */
	int folder_fd; /* and the working directory */
	int left_out;
};

/* ---- bytes ---- */

static la_ssize_t bytes_read(struct archive *archive, void *owner, const void **ret)
{
	struct unpacking *u = owner;
	int r;

	(void)archive;
	while (!u->over) {
		dsec_event_free(u->event);
		u->event = NULL;
		r = dsec_wait(u->session->d, u->ticket, -1, &u->event);
		if (r < 0) {
			u->error = r;
			u->over = true;
			return -1;
		}
		if (u->event->kind == DSEC_EV_ROW && u->event->body)
			remote_refusal_note(u->session, u->event->body);
		if (u->event->flags & DSEC_LAST) {
			u->over = true;
			u->status = u->event->status;
		}
		if (u->event->kind == DSEC_EV_DATA && u->event->bytes) {
			*ret = u->event->data;
			return (la_ssize_t)u->event->bytes;
		}
	}
	return u->status.code ? -1 : 0;
}

/* ---- entries ---- */

/* The folder a name lies in: not there yet, or reached without a link and inside. */
static int way_check(const struct unpacking *u, const char *name)
{
	const struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	const char *slash = strrchr(name, '/');
	auto_free char *folder = slash ? strndup(name, (size_t)(slash - name)) : NULL;
	auto_close int fd = -1;

	if (!slash)
		return 0;
	if (!folder)
		return -ENOMEM;
	fd = (int)syscall(SYS_openat2, u->folder_fd, folder, &how, sizeof(how));
	return fd >= 0 || errno == ENOENT ? 0 : -errno;
}

static bool name_is_inside(const char *name)
{
	if (!name || *name == '/')
		return false;
	while (*name) {
		size_t bytes = strcspn(name, "/");

		if (bytes == 2 && !memcmp(name, "..", 2))
			return false;
		name += bytes + (name[bytes] == '/');
	}
	return true;
}

static uint32_t entry_refusal(const struct unpacking *u, struct archive_entry *entry)
{
	const char *name = archive_entry_pathname(entry);
	const char *hard = archive_entry_hardlink(entry);
	const unsigned type = archive_entry_filetype(entry);

	if (!name_is_inside(name) || (hard && !name_is_inside(hard)))
		return DSEC_FILE_REASON_OUTSIDE;
	if (way_check(u, name) < 0 || (hard && way_check(u, hard) < 0))
		return DSEC_FILE_REASON_LINK;
	if (!hard && type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK)
		return DSEC_FILE_REASON_SPECIAL;
	return 0;
}

static void entry_leave_out(struct unpacking *u, struct archive_entry *entry, uint32_t reason,
			    int error)
{
	const char *name = archive_entry_pathname(entry);
	const struct dsec_file_row row = {
		.reason = reason,
		.error = (uint32_t)error,
		.name = { name ? name : "", name ? strlen(name) : 0 },
	};

	u->left_out++;
	remote_refusal_note(u->session, &row);
}

static int errno_of(struct archive *archive)
{
	int error = archive_errno(archive);

	return error > 0 ? -error : -EIO;
}

/* Of a file that ends early nothing stays. -errno of the disk; -EIO: what comes is damaged. */
static int contents_write(const struct unpacking *u, struct archive *from, struct archive *disk,
			  const char *name)
{
	const void *bytes;
	int64_t offset;
	size_t count;
	int r, error;

	while ((r = archive_read_data_block(from, &bytes, &count, &offset)) == ARCHIVE_OK) {
		if (archive_write_data_block(disk, bytes, count, offset) >= ARCHIVE_OK)
			continue;
		error = errno_of(disk);
		(void)archive_write_finish_entry(disk); /* it goes, whatever this says */
		(void)unlinkat(u->folder_fd, name, 0);	/* reached without links just now */
		return error;
	}
	return r == ARCHIVE_EOF ? 0 : -EIO;
}

/*
 * libarchive's own archive_read_extract2() makes a warning of all that fails on the disk, and
 * warnings are of times and attributes, too.
 */
static int entry_write(const struct unpacking *u, struct archive *from, struct archive *disk,
		       struct archive_entry *entry)
{
	int r;

	if (archive_write_header(disk, entry) < ARCHIVE_WARN)
		return errno_of(disk);
	if (archive_entry_filetype(entry) == AE_IFREG && archive_entry_size(entry) > 0) {
		r = contents_write(u, from, disk, archive_entry_pathname(entry));
		if (r < 0)
			return r;
	}
	return archive_write_finish_entry(disk) < ARCHIVE_WARN ? errno_of(disk) : 0;
}

/* No other entry would fare better. */
static bool is_hopeless(int r)
{
	return r == -ENOSPC || r == -EDQUOT || r == -EROFS;
}

static int entry_fail(const struct unpacking *u, struct archive_entry *entry, int r)
{
	char text[512];

	if (!u->error && !u->status.code) {
		(void)snprintf(text, sizeof(text), "%.400s: %s", archive_entry_pathname(entry),
			       strerror(-r)); /* cut is fine */
		(void)session_fail_error(u->session, r, "archive", text);
	}
	return ARCHIVE_FATAL;
}

static int entries_take(struct unpacking *u, struct archive *from, struct archive *disk)
{
	struct archive_entry *entry;
	int r;

	while ((r = archive_read_next_header(from, &entry)) == ARCHIVE_OK || r == ARCHIVE_WARN) {
		uint32_t reason = entry_refusal(u, entry);

		if (reason) {
			entry_leave_out(u, entry, reason, 0);
			continue;
		}
		archive_entry_set_perm(entry, archive_entry_perm(entry) & 0777);
		r = entry_write(u, from, disk, entry);
		if (r == -EIO || is_hopeless(r))
			return entry_fail(u, entry, r);
		if (r < 0)
			entry_leave_out(u, entry, DSEC_FILE_REASON_FAILED, -r);
	}
	return r;
}

static int archive_take(struct unpacking *u)
{
	const int flags = ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_UNLINK |
			  ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
			  ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS | ARCHIVE_EXTRACT_SPARSE;
	struct archive *from = archive_read_new(), *disk = archive_write_disk_new();
	int r = from && disk ? 0 : -ENOMEM;

	if (r == 0 && (archive_read_support_format_tar(from) != ARCHIVE_OK ||
		       archive_write_disk_set_options(disk, flags) != ARCHIVE_OK))
		r = -ENOMEM;
	if (r == 0 && archive_read_open(from, u, NULL, bytes_read, NULL) == ARCHIVE_OK)
		r = entries_take(u, from, disk) == ARCHIVE_EOF ? 0 : -EIO;
	else if (r == 0)
		r = -EIO;
	if (r == -EIO && !u->error && !u->status.code && !u->session->failure.code)
		r = session_fail_error(u->session, r, "archive",
				       archive_error_string(disk) ? archive_error_string(disk) :
				       archive_error_string(from) ? archive_error_string(from) :
								    "no archive");
	(void)archive_read_free(from);	/* it was only read */
	(void)archive_write_free(disk); /* folders get their times; nothing to do where not */
	return r;
}

/* What is left of it, so that its end is known. */
static void rest_take(struct unpacking *u)
{
	const void *bytes;

	if (!u->over)
		(void)dsec_cancel(u->session->d, u->ticket); /* it may have ended just now */
	while (!u->over)
		(void)bytes_read(NULL, u, &bytes); /* dropped */
	dsec_event_free(u->event);
}

int unpack(struct session *session, int64_t ticket, const char *folder)
{
	struct unpacking u = { .session = session, .ticket = ticket };
	auto_close int fd = -1;
	int r;

	if (ticket < 0)
		return session_fail_error(session, (int)ticket, "request",
					  dsec_error(session->d, ticket));
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 || fchdir(fd) < 0 ? -errno : 0;
	u.folder_fd = fd;
	if (r < 0)
		(void)session_fail_error(session, r, "folder", strerror(-r));
	else
		r = archive_take(&u);
	rest_take(&u);
	if (u.error)
		return session_fail_error(session, u.error, "connection",
					  dsec_error(session->d, u.error));
	if (u.status.code && u.status.code != DSEC_CANCELLED)
		return session_fail(session, "cp", &u.status);
	if (r == 0 && u.left_out)
		return session_fail_error(session, -EPERM, "archive",
					  "cp: what was left out is not there");
	return r ? EXIT_TROUBLE : 0;
}
