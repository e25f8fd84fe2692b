/*
 * What 3FS's library does, on any file system, with a thread per read: completions come late, out
 * of order, as errors or never, as the first byte of the blob's name says.
 */
#include "tests/unit/hf3fs_stand_in.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API(type, name) __attribute__((visibility("default"))) type hf3fs_##name

struct ring {
	pthread_mutex_t lock;
	pthread_cond_t came;
	struct hf3fs_cqe done[1024];
	unsigned count;
	unsigned reads;
};

struct one {
	struct ring *ring;
	void *at;
	int fd;
	size_t offset;
	uint64_t bytes;
	const void *userdata;
	unsigned number;
};

/* Reads wait for it, wherever they are. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t over;
	bool is_on;
} hold = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false };

API(void, stand_in_hold)(bool held)
{
	pthread_mutex_lock(&hold.lock);
	hold.is_on = held;
	pthread_cond_broadcast(&hold.over);
	pthread_mutex_unlock(&hold.lock);
}

static void hold_wait(void)
{
	pthread_mutex_lock(&hold.lock);
	while (hold.is_on)
		pthread_cond_wait(&hold.over, &hold.lock);
	pthread_mutex_unlock(&hold.lock);
}

API(int, extract_mount_point)(char *mount_point, int size, const char *path)
{
	static const char *const mounts[] = { "/tmp", "/dev/shm" };

	for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++)
		if (!strncmp(path, mounts[i], strlen(mounts[i])))
			return snprintf(mount_point, (size_t)size, "%s", mounts[i]) + 1;
	return -1;
}

API(int, iovcreate)(struct hf3fs_iov *iov, const char *mp, size_t size, size_t block, int numa)
{
	(void)mp;
	memset(iov, 0, sizeof *iov);
	iov->base = malloc(size);
	iov->size = size;
	iov->block_size = block;
	iov->numa = numa;
	return iov->base ? 0 : -ENOMEM;
}

API(void, iovdestroy)(struct hf3fs_iov *iov)
{
	free(iov->base);
}

API(int, iorcreate4)
(struct hf3fs_ior *ior, const char *mp, int entries, bool for_read, int io_depth, int timeout,
 int numa, uint64_t flags)
{
	struct ring *ring = calloc(1, sizeof *ring);

	(void)mp;
	(void)timeout;
	(void)numa;
	if (!ring || entries < 32 || !for_read || io_depth || flags != 2)
		return -EINVAL;
	pthread_mutex_init(&ring->lock, NULL);
	pthread_cond_init(&ring->came, NULL);
	memset(ior, 0, sizeof *ior);
	ior->iorh = ring;
	return 0;
}

API(void, iordestroy)(struct hf3fs_ior *ior)
{
	free(ior->iorh);
}

API(int, reg_fd)(int fd, uint64_t flags)
{
	return fd < 0 || flags ? EINVAL : 0;
}

API(void, dereg_fd)(int fd)
{
	(void)fd;
}

static unsigned lie_of(int fd)
{
	char link[64], path[512] = "";
	unsigned lie = 0;
	const char *name;

	(void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if (readlink(link, path, sizeof path - 1) > 0 && (name = strrchr(path, '/')))
		(void)sscanf(name, "/%2x", &lie);
	return lie;
}

static void cqe_add(struct ring *ring, int64_t result, const void *userdata)
{
	pthread_mutex_lock(&ring->lock);
	ring->done[ring->count++] = (struct hf3fs_cqe){ .result = result, .userdata = userdata };
	pthread_cond_signal(&ring->came);
	pthread_mutex_unlock(&ring->lock);
}

static void *one_run(void *argument)
{
	struct one *one = argument;
	int64_t result;

	hold_wait();
	result = pread(one->fd, one->at, one->bytes, (off_t)one->offset);
	(void)usleep(one->number * 7919 % 5000); /* so they overtake each other */
	switch ((enum usrbio_lie)lie_of(one->fd)) {
	case USRBIO_FAILS:
		result = -EREMOTEIO;
		break;
	case USRBIO_SAYS_MORE:
		result = (int64_t)one->bytes + 1;
		break;
	case USRBIO_TWICE:
		cqe_add(one->ring, result, one->userdata);
		break;
	case USRBIO_ANOTHER:
		cqe_add(one->ring, 10, (const char *)one->userdata + 3);
		cqe_add(one->ring, 10, NULL);
		break;
	default:
		break;
	}
	cqe_add(one->ring, result, one->userdata);
	free(one);
	return NULL;
}

API(int, prep_io)
(const struct hf3fs_ior *ior, const struct hf3fs_iov *iov, bool read, void *at, int fd,
 size_t offset, uint64_t bytes, const void *userdata)
{
	struct ring *ring = ior->iorh;
	struct one *one = malloc(sizeof *one);
	pthread_t thread;

	if (!one || !read || (uint8_t *)at < iov->base ||
	    (uint8_t *)at + bytes > iov->base + iov->size)
		abort();
	*one = (struct one){ ring, at, fd, offset, bytes, userdata, ring->reads++ };
	if (lie_of(fd) == USRBIO_HANGS) {
		free(one);
		return 0;
	}
	if (lie_of(fd) == USRBIO_REFUSES || pthread_create(&thread, NULL, one_run, one)) {
		free(one);
		return -EAGAIN;
	}
	(void)pthread_detach(thread);
	return 0;
}

API(int, submit_ios)(const struct hf3fs_ior *ior)
{
	(void)ior;
	return 0;
}

API(int, wait_for_ios)
(const struct hf3fs_ior *ior, struct hf3fs_cqe *cqes, int most, int least,
 const struct timespec *until)
{
	struct ring *ring = ior->iorh;
	int count = 0;

	pthread_mutex_lock(&ring->lock);
	while (ring->count < (unsigned)least &&
	       pthread_cond_timedwait(&ring->came, &ring->lock, until) == 0)
		;
	/* The last first. */
	while (count < most && ring->count)
		cqes[count++] = ring->done[--ring->count];
	pthread_mutex_unlock(&ring->lock);
	return count ? count : -ETIMEDOUT;
}
