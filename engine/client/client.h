/*
 * A client's connection: the handshake, its memory, its channels on the shards and its end. A
 * client belongs to its home shard; the socket is its lifeline.
 */
#pragma once

#include <stdint.h>

struct channel;
struct client;
struct mail;
struct shard;

/*
 * A new connection for this shard, by the socket of tenant `door`; takes the descriptor. `place`
 * goes back with control_client_gone() when nothing of the client is left.
 */
void client_open(struct shard *shard, int fd, uint32_t door, struct mail *place);
/* Tells a connection that is not to become a client why; the descriptor stays the caller's. */
void client_turn_away(int fd, uint32_t code, const char *text);
/* Every client of this shard ends: the engine stops. */
void clients_close(struct shard *shard);

/* For channels, on any shard. */
int client_socket(const struct client *client);
/* It broke the rules: log why (may be NULL) and hang up; its end comes by the socket. */
void client_cut(struct channel *channel, const char *why);
/* Home shard, stream transport: the socket ended. */
void client_hung_up(struct channel *channel);
/* The channel came closer to its end; frees it when nothing of it is left. */
void client_channel_settled(struct channel *channel);
