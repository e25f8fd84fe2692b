/*
 * The control thread: the engine's main thread. It may block, so it does what blocks: starts
 * launcher workers, mounts images, waits for signals. It owns a loop, to speak with shards by mail.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct config;
struct image_runs;
struct scratches;
struct control;
struct engine_handover;
struct image_table;
struct io;
struct mail;
struct node;
struct policy_table;
struct serve;
struct shard;

/* Start everything; on failure nothing is left. Logs why. */
int control_open(const struct config *config, const struct engine_handover *handover,
		 struct control **ret);
/* Serve until told to stop. */
void control_run(struct control *control);
/* Stop shards, give everything back. Returns 0 when nothing is left. */
int control_close(struct control *control);

/* For mail, images, their runs and policies. */
struct io *control_io(struct control *control);
int control_cgroup(const struct control *control); /* the instance's root; borrowed */
struct image_table *control_images(struct control *control);
struct serve *control_serve(struct control *control); /* NULL: nothing is served */
struct node *control_node(struct control *control);
struct policy_table *control_policies(struct control *control);
const struct config *control_config(const struct control *control);
struct image_runs *control_image_runs(struct control *control);
struct scratches *control_scratches(struct control *control);

/* From a shard: it lost a launcher worker and wants another. */
void control_launcher_lost(struct control *control, struct shard *shard);
/* The same without a loss: one more. */
void control_launcher_wanted(struct control *control, struct shard *shard);
/* From a shard: a worker of it does not answer; it is killed. */
void control_launcher_stuck(struct control *control, struct shard *shard, int pid);
/* From a shard: what client_open() was given with a client that has gone. */
void control_client_gone(struct control *control, struct shard *shard, struct mail *place);
/* From a shard: it has stopped. */
void control_shard_stopped(struct control *control, struct shard *shard);
