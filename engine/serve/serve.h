/*
 * Segments that are not whole on this node, on the control thread: the cache's directory, which
 * segment is whose, what goes when the cache is full, and the FUSE connections of the shards.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/store/tree.h"

struct control;
struct serve;
struct serve_entry;
struct served;
struct server;
struct shard;

/* Somebody who wants a segment for a mount. The asker's until ready(). */
struct serve_use {
	struct tree_segment segment;
	struct serve_use *next;
	struct serve_entry *entry; /* to be put back when the mount is gone; NULL: none */
	int result;		   /* a descriptor, the asker's; or -errno */
	void (*ready)(struct serve_use *use);
	void *owner;
};

/*
 * Before the shards' first segment. NULL in `ret`: there is no remote, or no cache for this engine,
 * and it was logged why. -ENOMEM.
 */
int serve_open(struct control *control, int keeper_fd, struct serve **ret);
/* The shards have ended. */
void serve_close(struct serve *serve);
/* When the shards run: connections of an engine before go on. */
void serve_adopt(struct serve *serve);
/*
 * What engines before left with the keeper ends, how many: whoever waits there has EIO. When their
 * mounts cannot go because nobody answers.
 */
uint32_t serve_forsake(int keeper_fd);
/* Now and then: what is used no more goes home, what is too much goes, what rests is looked at. */
void serve_tick(struct serve *serve);
/* 0: use->result is there; -EAGAIN: ready() will be called; else no use began. */
int serve_begin(struct serve *serve, struct serve_use *use);
/* It is whole: the mount reads the cache's file. */
bool serve_is_whole(const struct serve_entry *entry);
/* The mount is gone, or was not made. */
void serve_put(struct serve_entry *entry);

/* ---- from a shard ---- */

void serve_taken(struct served *served);
void serve_given(struct shard *shard, struct served *served);
/* server->node_wanted is of an engine before. */
void serve_node_want(struct server *server);
/* So many bytes more in the cache. False: it is full, and what can go will. */
bool serve_room_take(struct server *server, uint32_t bytes);
void serve_room_give(struct served *served, uint32_t bytes);
