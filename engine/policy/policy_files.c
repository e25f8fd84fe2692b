/*
 * The files of policies. Called by policies.c where one changes, at the engine's start, and when an
 * instance is uninstalled. Must hold: what is read is checked as what a client sends; nothing is
 * followed out of the folder; what cannot be read is not lost.
 */
#include "engine/policy/policy_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/policy/policies.h"

#define HEAD   "dsec-policy"
#define PREFIX "policy."
#define FRESH  ".policy-new"

enum {
	HEAD_BYTES_MAX = 64,
	FILE_NAME_MAX = 128,
	KEPT_MAX = 64 * POLICIES_OWN_MAX,
};

/* A file, on its way into the table. */
struct kept {
	char file[FILE_NAME_MAX];
	uint32_t tenant, number;
	char *document;
	size_t document_bytes;
	bool is_done;
};

/* Names in the folder of `fd` are on the disk as they are now. */
static int names_sync(int fd)
{
	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

/* Fine where it is there already; a new one is on the disk. */
static int folder_make(const char *path, mode_t mode)
{
	auto_close int fd = -1;
	auto_close int above_fd = -1;

	if (mkdir(path, mode) < 0)
		return errno == EEXIST ? 0 : -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0)
		above_fd = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return names_sync(above_fd);
}

static int folder_open(const struct policy_files *files, bool make)
{
	char path[PATH_MAX];
	int fd, r = 0;

	if (snprintf(path, sizeof path, "%s/%s", files->state, files->instance) >= PATH_MAX)
		return -ENAMETOOLONG;
	for (char *at = path + 1; make && r == 0 && (at = strchr(at, '/')); *at++ = '/') {
		*at = '\0';
		r = folder_make(path, 0755);
	}
	if (make && r == 0)
		r = folder_make(path, 0700);
	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

static void folder_drop(const struct policy_files *files)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof path, "%s/%s", files->state, files->instance); /* it fitted */
	(void)rmdir(path); /* others may be in it */
}

static void file_name(const struct policy_files *files, uint32_t tenant, const char *name,
		      char ret[static FILE_NAME_MAX])
{
	(void)snprintf(ret, FILE_NAME_MAX, PREFIX "%s.%s", files->tenants[tenant], name); /* fits */
}

static int failed(const char *what, const char *name, int error)
{
	log_error("policy not %s name=\"%s\" err=%s", what, name, strerror(-error));
	return -EIO;
}

/* ---- one that changes ---- */

static int file_write(int folder_fd, const struct policy *policy)
{
	auto_close int fd = openat(folder_fd, FRESH,
				   O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	char head[HEAD_BYTES_MAX];
	int bytes;

	if (fd < 0)
		return -errno;
	bytes = snprintf(head, sizeof head, HEAD " %" PRIu32 " %zu\n", policy->guard.number,
			 policy->document_bytes);
	errno = ENOSPC; /* of a short write */
	if (write(fd, head, (size_t)bytes) != bytes ||
	    write(fd, policy->document, policy->document_bytes) != (ssize_t)policy->document_bytes)
		return -errno;
	return fsync(fd) < 0 ? -errno : 0;
}

/*
 * A write that an engine's or the machine's end cuts leaves what was there: the file is on the disk
 * before it has its name, and the name before anybody is told that it is kept. Where the disk fails
 * at the name alone the load fails, and the next engine may have either.
 */
static int file_put(const struct policy_store *store, const struct policy *policy)
{
	const struct policy_files *files = container_of(store, const struct policy_files, store);
	auto_close int folder_fd = folder_open(files, true);
	char file[FILE_NAME_MAX];
	int r = folder_fd < 0 ? folder_fd : file_write(folder_fd, policy);

	file_name(files, policy->tenant, policy->guard.name, file);
	if (r == 0 && renameat(folder_fd, FRESH, folder_fd, file) < 0)
		r = -errno;
	if (r < 0 && folder_fd >= 0)
		(void)unlinkat(folder_fd, FRESH, 0); /* the next one is written over it */
	else if (r == 0)
		r = names_sync(folder_fd);
	return r < 0 ? failed("kept", policy->guard.name, r) : 0;
}

static int file_remove(const struct policy_store *store, uint32_t tenant, const char *name)
{
	const struct policy_files *files = container_of(store, const struct policy_files, store);
	auto_close int folder_fd = folder_open(files, false);
	char file[FILE_NAME_MAX];

	if (folder_fd < 0)
		return folder_fd == -ENOENT ? 0 : failed("removed", name, folder_fd);
	file_name(files, tenant, name, file);
	if (unlinkat(folder_fd, file, 0) < 0 && errno != ENOENT)
		return failed("removed", name, -errno);
	if (names_sync(folder_fd) < 0)
		return failed("removed", name, -EIO);
	folder_drop(files);
	return 0;
}

void policy_files_init(struct policy_files *files)
{
	files->store = (struct policy_store){ .put = file_put, .remove = file_remove };
}

int policy_files_forget(const struct policy_files *files)
{
	auto_close int folder_fd = folder_open(files, false);
	const int own_fd = folder_fd < 0 ? folder_fd : openat(folder_fd, ".", O_RDONLY | O_CLOEXEC);
	DIR *folder = own_fd < 0 ? NULL : fdopendir(own_fd);
	struct dirent *entry;
	int r = 0;

	if (!folder)
		return folder_fd == -ENOENT ? 0 : failed("forgotten", files->instance, -errno);
	while ((entry = readdir(folder))) {
		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0 &&
		    strcmp(entry->d_name, FRESH) != 0)
			continue;
		if (unlinkat(folder_fd, entry->d_name, 0) < 0)
			r = failed("forgotten", entry->d_name, -errno);
	}
	(void)closedir(folder); /* was only read; own_fd with it */
	folder_drop(files);
	return r;
}

/* ---- all, at the start ---- */

static int tenant_find(const struct policy_files *files, const char *file, uint32_t *ret)
{
	const char *name = file + strlen(PREFIX);
	const size_t bytes = strcspn(name, ".");

	for (uint32_t i = 0; i < files->tenant_count; i++)
		if (strlen(files->tenants[i]) == bytes &&
		    !strncmp(files->tenants[i], name, bytes)) {
			*ret = i;
			return 0;
		}
	return -ENOENT;
}

static int document_read(int fd, struct kept *kept)
{
	auto_free char *text = malloc(HEAD_BYTES_MAX + POLICY_DOCUMENT_BYTES_MAX + 1);
	ssize_t bytes;
	size_t wanted;
	int head = 0;

	if (!text)
		return -ENOMEM;
	bytes = read(fd, text, HEAD_BYTES_MAX + POLICY_DOCUMENT_BYTES_MAX);
	if (bytes < 0)
		return -errno;
	text[bytes] = '\0';
	if (sscanf(text, HEAD " %9" SCNu32 " %9zu%n", &kept->number, &wanted, &head) != 2 ||
	    !head || text[head] != '\n' || wanted != (size_t)(bytes - head - 1))
		return -EBADMSG; /* also what a crash of the machine cut */
	memmove(text, text + head + 1, wanted);
	kept->document = take_ptr(text);
	kept->document_bytes = wanted;
	return 0;
}

static int file_read(const struct policy_files *files, int folder_fd, struct kept *kept)
{
	auto_close int fd =
		openat(folder_fd, kept->file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	r = S_ISREG(st.st_mode) ? document_read(fd, kept) : -EBADMSG;
	return r < 0 ? r : tenant_find(files, kept->file, &kept->tenant);
}

static int by_number(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

static void not_restored(const char *file, const char *why)
{
	log_warning("policy not restored file=\"%s\": %s, continuing", file, why);
}

static uint32_t files_read(const struct policy_files *files, int folder_fd, struct kept *all)
{
	const int own_fd = openat(folder_fd, ".", O_RDONLY | O_CLOEXEC);
	DIR *folder = own_fd < 0 ? NULL : fdopendir(own_fd);
	struct dirent *entry;
	uint32_t count = 0;
	int r;

	while (folder && count < KEPT_MAX && (entry = readdir(folder))) {
		struct kept *kept = &all[count];

		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0 ||
		    strlen(entry->d_name) >= sizeof kept->file)
			continue;
		*kept = (struct kept){ 0 };
		strcpy(kept->file, entry->d_name);
		r = file_read(files, folder_fd, kept);
		if (r == 0) {
			count++;
			continue;
		}
		free(kept->document);
		not_restored(kept->file, r == -ENOENT  ? "its tenant is not there" :
					 r == -EBADMSG ? "it is cut, or no policy" :
							 strerror(-r));
	}
	if (folder)
		(void)closedir(folder); /* was only read; own_fd with it */
	qsort(all, count, sizeof *all, by_number);
	return count;
}

/* 1: it is there; 0: not yet, and the mistake says why. */
static int kept_load(struct policy_table *table, const struct kept *kept, uint64_t now_ns,
		     struct policy_mistake *mistake)
{
	const struct policy_request request = {
		.tenant = kept->tenant,
		.name = strchr(kept->file + strlen(PREFIX), '.') + 1,
		.document = kept->document,
		.document_bytes = kept->document_bytes,
		.now_ns = now_ns,
		.is_restored = true,
	};
	int r = policies_restore(table, &request, kept->number, mistake);

	if (r == 0)
		return 1;
	if (r != -EBADMSG)
		(void)snprintf(mistake->text, sizeof mistake->text, "%s", strerror(-r)); /* cut */
	return 0;
}

uint32_t policy_files_restore(const struct policy_files *files, struct policy_table *table,
			      uint64_t now_ns)
{
	auto_free struct kept *all = calloc(KEPT_MAX, sizeof *all);
	auto_close int folder_fd = folder_open(files, false);
	struct policy_mistake mistake = { 0 };
	uint32_t count = 0, done = 0, before;

	if (all && folder_fd >= 0)
		count = files_read(files, folder_fd, all);
	else if (!all || folder_fd != -ENOENT)
		not_restored(files->state, strerror(all ? -folder_fd : ENOMEM));
	/* What another extends or leads to may have been replaced since, and come later. */
	do {
		before = done;
		for (uint32_t i = 0; i < count; i++)
			if (!all[i].is_done && kept_load(table, &all[i], now_ns, &mistake)) {
				all[i].is_done = true;
				done++;
			}
	} while (done != before && done != count);
	for (uint32_t i = 0; i < count; i++) {
		if (!all[i].is_done && !kept_load(table, &all[i], now_ns, &mistake))
			not_restored(all[i].file, mistake.text);
		free(all[i].document);
	}
	return done;
}
