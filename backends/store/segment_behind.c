/*
 * The second thread of whoever writes segments. Called by segment.c. Must hold: the thread makes no
 * memory and no files; it ends before behind_free() does; where it is far behind, the first waits.
 */
#include "backends/store/segment_behind.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "backends/store/segment.h"

enum {
	PIECES = 32, /* 2 MiB: both threads have something to do while one of them waits */
	DISK_BYTES = 8 << 20,
};

struct behind {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t given, done;
	struct behind_piece *first, **last; /* given; the first of them may be at work */
	struct behind_piece *empty;
	bool over;
	struct digest *chunk;
	struct behind_piece pieces[PIECES];
	char bytes[PIECES][SEGMENT_CHUNK_BYTES];
};

/* ---- the thread ---- */

static void piece_do(const struct behind *b, const struct behind_piece *piece)
{
	uint64_t end = piece->at + piece->count;

	digest_add(piece->file, piece->bytes, piece->count);
	digest_add(b->chunk, piece->bytes, piece->count);
	digest_take(b->chunk, piece->ret);
	/* Only begun: whoever syncs is told of errors. */
	if (end % DISK_BYTES == 0)
		(void)sync_file_range(piece->fd, (off_t)(end - DISK_BYTES), DISK_BYTES,
				      SYNC_FILE_RANGE_WRITE);
}

static void piece_empty(struct behind *b, struct behind_piece *piece)
{
	piece->next = b->empty;
	b->empty = piece;
}

static void *behind_run(void *owner)
{
	struct behind *b = owner;

	pthread_mutex_lock(&b->lock);
	for (;;) {
		struct behind_piece *piece = b->first;

		if (b->over)
			break;
		if (!piece) {
			pthread_cond_wait(&b->given, &b->lock);
			continue;
		}
		pthread_mutex_unlock(&b->lock);
		piece_do(b, piece);
		pthread_mutex_lock(&b->lock);
		b->first = piece->next;
		if (!b->first)
			b->last = &b->first;
		piece_empty(b, piece);
		pthread_cond_signal(&b->done);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

/* ---- who gives ---- */

int behind_new(struct behind **ret)
{
	struct behind *b = calloc(1, sizeof *b);
	int r;

	if (!b)
		return -ENOMEM;
	b->chunk = digest_new();
	if (!b->chunk) {
		free(b);
		return -ENOMEM;
	}
	b->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	b->given = b->done = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	b->last = &b->first;
	for (unsigned i = 0; i < PIECES; i++) {
		b->pieces[i].bytes = b->bytes[i];
		piece_empty(b, &b->pieces[i]);
	}
	r = -pthread_create(&b->thread, NULL, behind_run, b);
	if (r < 0) {
		digest_free(b->chunk);
		free(b);
		return r;
	}
	*ret = b;
	return 0;
}

void behind_free(struct behind *b)
{
	if (!b)
		return;
	pthread_mutex_lock(&b->lock);
	b->over = true;
	pthread_cond_signal(&b->given);
	pthread_mutex_unlock(&b->lock);
	(void)pthread_join(b->thread, NULL); /* it is there, and not joined yet */
	digest_free(b->chunk);
	free(b);
}

struct behind_piece *behind_take(struct behind *b)
{
	struct behind_piece *piece;

	pthread_mutex_lock(&b->lock);
	while (!b->empty)
		pthread_cond_wait(&b->done, &b->lock);
	piece = b->empty;
	b->empty = piece->next;
	pthread_mutex_unlock(&b->lock);
	piece->count = 0;
	return piece;
}

void behind_give(struct behind *b, struct behind_piece *piece)
{
	piece->next = NULL;
	pthread_mutex_lock(&b->lock);
	*b->last = piece;
	b->last = &piece->next;
	pthread_cond_signal(&b->given);
	pthread_mutex_unlock(&b->lock);
}

void behind_return(struct behind *b, struct behind_piece *piece)
{
	pthread_mutex_lock(&b->lock);
	piece_empty(b, piece);
	pthread_mutex_unlock(&b->lock);
}

void behind_wait(struct behind *b)
{
	pthread_mutex_lock(&b->lock);
	while (b->first)
		pthread_cond_wait(&b->done, &b->lock);
	pthread_mutex_unlock(&b->lock);
}
