/*
 * Connections. Called by the shard's loop with accepted sockets and by channels. A handshake has a
 * deadline; a client that has gone is freed when all its channels have settled on their shards,
 * because requests in flight still refer to them. What may sleep of its beginning and its end the
 * control thread does: meanwhile the shard leaves the client's memory alone.
 */
#include "engine/client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/client/channel.h"
#include "engine/config_tenant.h"
#include "engine/control.h"
#include "engine/client/memory.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"
#include "engine/request/wire.h"

#define HANDSHAKE_NS (10 * 1000000000ull)

enum client_state {
	CLIENT_HELLO,
	CLIENT_TOKEN,
	CLIENT_GREETED, /* the control thread makes its memory, and welcomes it */
	CLIENT_MAPPED,
	CLIENT_SEALING, /* on the control thread */
	CLIENT_OPEN,
	CLIENT_CLOSING,
};

struct client {
	struct shard *shard;
	struct client *next, *previous;
	struct io_op receive;
	struct timer deadline;
	enum client_state state;
	bool receiving, is_away; /* with the control thread */
	struct mail mail;
	int (*work)(struct client *client); /* there */
	int result;
	int fd;
	struct mail *place; /* among clients_max */
	uint32_t door;
	struct tenant *tenant; /* NULL: it has not shown who it is */
	bool is_own;	       /* of root, or of the engine's own uid */
	uint64_t id;
	struct dsec_ring_hello hello;
	struct dsec_ring_step step;
	char token[DSEC_TOKEN_BYTES_MAX];
	char byte;
	uint32_t got;
	struct client_memory memory;
	uint32_t channel_count, channels_left;
	struct channel **channels;
};

static void client_end(struct client *client);
static void client_received(struct io_op *op, int res);
static void client_worked(struct mail *mail, void *owner);

int client_socket(const struct client *client)
{
	return client->fd;
}

static void client_receive(struct client *client, void *at, uint32_t bytes)
{
	client->receiving = true;
	client->receive.done = client_received;
	io_recv(client->shard->io, &client->receive, client->fd, at, bytes);
}

/* ---- the control thread's part ---- */

/* There. */
static void client_forget(struct mail *mail, void *owner)
{
	struct client *client = container_of(mail, struct client, mail);

	(void)owner;
	client_memory_done(&client->memory);
	cleanup_close(&client->fd);
	free(client->channels);
	free(client);
}

/* There. */
static void client_work(struct mail *mail, void *owner)
{
	struct client *client = container_of(mail, struct client, mail);

	client->result = client->work(client);
	mail->deliver = client_worked;
	mail_send(control_io(owner), client->shard->io, mail);
}

/* Between this and client_worked() the client is the control thread's. */
static void client_send_away(struct client *client, int (*work)(struct client *client))
{
	struct shard *shard = client->shard;

	client->is_away = true;
	client->work = work;
	client->mail.deliver = client_work;
	mail_send(shard->io, control_io(shard->node->control), &client->mail);
}

static void client_free(struct client *client)
{
	struct shard *shard = client->shard;
	struct control *control = shard->node->control;
	struct mail *place = client->place;

	if (client->previous)
		client->previous->next = client->next;
	else
		shard->clients = client->next;
	if (client->next)
		client->next->previous = client->previous;
	timer_clear(&shard->timers, &client->deadline);
	if (client->tenant) {
		shard->tenancies[client->tenant->index].clients--;
		tenant_give(client->tenant, TENANT_CLIENTS);
	}
	client->mail.deliver = client_forget;
	mail_send(shard->io, control_io(control), &client->mail);
	control_client_gone(control, shard, place);
	shard->clients_live--;
	shard_check_stopped(shard);
}

static void client_try_free(struct client *client)
{
	if (client->state == CLIENT_CLOSING && !client->receiving && !client->is_away &&
	    !client->channels_left)
		client_free(client);
}

/* ---- the end ---- */

static void channel_gone(struct mail *mail, void *owner)
{
	struct channel *channel = container_of(mail, struct channel, close_mail);
	struct client *client = channel->client;

	(void)owner; /* the home shard, which the client knows */
	channel_free(channel);
	client->channels_left--;
	client_try_free(client);
}

void client_channel_settled(struct channel *channel)
{
	if (channel->settled || !channel_is_settled(channel))
		return;
	channel->settled = true;
	channel->close_mail.deliver = channel_gone;
	shard_send(channel->shard, channel->client->shard, &channel->close_mail);
}

static void channel_close_deliver(struct mail *mail, void *owner)
{
	(void)owner; /* channel->shard */
	channel_close(container_of(mail, struct channel, close_mail));
}

static void client_end(struct client *client)
{
	struct shard *shard = client->shard;

	if (client->state == CLIENT_CLOSING)
		return;
	bool opened = client->state == CLIENT_OPEN;

	client->state = CLIENT_CLOSING;
	timer_clear(&shard->timers, &client->deadline);
	(void)shutdown(client->fd, SHUT_RDWR);
	for (uint32_t i = 0; opened && i < client->channel_count; i++) {
		struct channel *channel = client->channels[i];

		channel->close_mail.deliver = channel_close_deliver;
		shard_send(shard, channel->shard, &channel->close_mail);
	}
	if (opened && !shard->stopping)
		sandboxes_disconnect(shard, client->id);
	/* There are none yet when memory or descriptors ran out before them. */
	for (uint32_t i = 0; !opened && client->channels && i < client->channel_count; i++)
		channel_free(client->channels[i]);
	client_try_free(client);
}

void client_cut(struct channel *channel, const char *why)
{
	if (channel->broken)
		return;
	channel->broken = true;
	if (why)
		log_warning("client cut id=%llu reason=\"%s\"",
			    (unsigned long long)channel->client_id, why);
	(void)shutdown(channel->client->fd, SHUT_RDWR);
}

void client_hung_up(struct channel *channel)
{
	client_end(channel->client);
}

/* ---- the handshake ---- */

void client_turn_away(int fd, uint32_t code, const char *text)
{
	struct dsec_ring_welcome welcome = {
		.magic = DSEC_RING_MAGIC,
		.major = DSEC_RING_MAJOR,
		.minor = DSEC_RING_MINOR,
		.code = code,
	};

	(void)strncpy(welcome.text, text, sizeof welcome.text - 1);
	/* A client that does not read its refusal loses nothing by it. */
	(void)send(fd, &welcome, sizeof welcome, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void client_refuse(struct client *client, uint32_t code, const char *text)
{
	client_turn_away(client->fd, code, text);
	client_end(client);
}

/* Both versions: whoever reads it knows which of the two is too old. */
static void client_refuse_version(struct client *client)
{
	const struct dsec_ring_hello *hello = &client->hello;
	char text[sizeof((struct dsec_ring_welcome *)NULL)->text];

	(void)snprintf(text, sizeof text, "this engine speaks %u.%u, the client %u.%u to %u.%u",
		       DSEC_RING_MAJOR, DSEC_RING_MINOR, hello->major, hello->minor_min,
		       hello->major, hello->minor_max); /* cut is fine */
	client_refuse(client, DSEC_UNSUPPORTED, text);
}

static int client_make_channels(struct client *client)
{
	int r;

	client->channels = calloc(client->channel_count, sizeof *client->channels);
	if (!client->channels)
		return -ENOMEM;
	for (uint32_t i = 0; i < client->channel_count; i++) {
		struct channel_options options = {
			.client = client,
			.client_id = client->id,
			.tenant = client->tenant,
			.is_own = client->is_own,
			.number = i,
			.is_stream = client->hello.transport == DSEC_TRANSPORT_STREAM,
			.memory = client->memory.base,
			.layout = &client->memory.layout,
			.doorbell_fd = client_memory_take_doorbell(&client->memory, i),
		};

		r = channel_new(&options, &client->channels[i]);
		if (r < 0) {
			cleanup_close(&options.doorbell_fd);
			return r;
		}
	}
	return 0;
}

static void channel_open_deliver(struct mail *mail, void *owner)
{
	struct channel *channel = container_of(mail, struct channel, open_mail);

	channel_open(channel, owner);
}

static void client_start(struct client *client)
{
	struct shard *shard = client->shard;
	uint32_t shards = shard->node->shard_count;

	client->state = CLIENT_OPEN;
	client->channels_left = client->channel_count;
	timer_clear(&shard->timers, &client->deadline);
	for (uint32_t i = 0; i < client->channel_count; i++) {
		struct channel *channel = client->channels[i];
		struct shard *to = client->channel_count > 1 ? shard->node->shards[i % shards] :
							       shard;

		channel->shard = to;
		channel->open_mail.deliver = channel_open_deliver;
		shard_send(shard, to, &channel->open_mail);
	}
	if (client->hello.transport == DSEC_TRANSPORT_RING)
		client_receive(client, &client->byte, 1);
}

/* On the control thread. */
static int client_welcome(struct client *client)
{
	struct client_memory *memory = &client->memory;
	int r;

	r = client_memory_init(memory, client->shard->node, &client->hello, client->channel_count);
	if (r < 0)
		return r;
	memory->layout.home_shard = 1 + (client->channel_count > 1 ? 0 : client->shard->number);
	return client_memory_send(memory, client->fd);
}

/* On the control thread. */
static int client_seal(struct client *client)
{
	return client_memory_seal(&client->memory);
}

static struct identity client_identify(struct client *client)
{
	struct ucred peer = { .uid = UINT32_MAX };
	socklen_t bytes = sizeof peer;
	struct caller caller = {
		.door = client->door,
		.token = client->token,
		.token_bytes = client->hello.token_bytes,
		.acts_for = client->hello.tenant,
	};

	/* It fails for no unix socket; nobody has the uid that stands there then. */
	(void)getsockopt(client->fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
	caller.uid = peer.uid;
	client->is_own = peer.uid == 0 || peer.uid == geteuid();
	return tenant_identify(client->shard->node, &caller);
}

static void client_greet(struct client *client)
{
	const bool ring = client->hello.transport == DSEC_TRANSPORT_RING;
	const uint32_t shards = client->shard->node->shard_count;
	struct identity who = client_identify(client);

	if (!who.tenant) {
		client_refuse(client, who.code, who.text);
		return;
	}
	if (!tenant_take(who.tenant, TENANT_CLIENTS)) {
		client_refuse(client, DSEC_REFUSED, "as many clients as the tenant may have");
		return;
	}
	client->tenant = who.tenant;
	client->shard->tenancies[who.tenant->index].clients++;
	client->channel_count = ring && client->hello.channels > 1 ? shards : 1;
	if (client->channel_count > DSEC_CHANNELS_MAX)
		client->channel_count = DSEC_CHANNELS_MAX;
	client->state = CLIENT_GREETED;
	client_send_away(client, client_welcome);
}

static void client_welcomed(struct client *client)
{
	int r = client->result;

	if (r >= 0)
		r = client_make_channels(client);
	if (r < 0) {
		client_refuse(client, DSEC_REFUSED, "no memory or descriptors for a connection");
		return;
	}
	if (client->hello.transport == DSEC_TRANSPORT_STREAM) {
		client_start(client);
		return;
	}
	client->state = CLIENT_MAPPED;
	client->got = 0;
	client_receive(client, &client->step, sizeof client->step);
}

/* "", "*", or a name; filled up with zero. */
static bool tenant_text_is_good(const struct dsec_ring_hello *hello)
{
	const char *name = hello->tenant;
	size_t bytes = strnlen(name, sizeof hello->tenant);

	return bytes < sizeof hello->tenant &&
	       wire_is_zero(name + bytes, sizeof hello->tenant - bytes) &&
	       (!bytes || !strcmp(name, TENANT_EVERYONE) || tenant_name_is_good(name));
}

static void client_got_hello(struct client *client)
{
	const struct dsec_ring_hello *hello = &client->hello;

	if (hello->magic != DSEC_RING_MAGIC) {
		client_end(client); /* not a client of ours: no words for it */
	} else if (hello->major != DSEC_RING_MAJOR || hello->minor_min > DSEC_RING_MINOR) {
		client_refuse_version(client);
	} else if (!wire_is_zero(hello->reserved, sizeof hello->reserved)) {
		client_refuse(client, DSEC_INVALID, "hello: reserved fields must be zero");
	} else if (hello->transport != DSEC_TRANSPORT_RING &&
		   hello->transport != DSEC_TRANSPORT_STREAM) {
		client_refuse(client, DSEC_UNSUPPORTED, "hello: unknown transport");
	} else if (!tenant_text_is_good(hello)) {
		client_refuse(client, DSEC_INVALID, "hello: tenant: no name of one");
	} else if (hello->token_bytes > DSEC_TOKEN_BYTES_MAX) {
		client_refuse(client, DSEC_INVALID, "hello: token too long");
	} else if (hello->token_bytes) {
		client->state = CLIENT_TOKEN;
		client->got = 0;
		client_receive(client, client->token, hello->token_bytes);
	} else {
		client_greet(client);
	}
}

static void client_got_mapped(struct client *client)
{
	if (client->step.magic != DSEC_RING_MAGIC || client->step.step != 1 ||
	    client->step.reserved) {
		client_end(client);
		return;
	}
	client->state = CLIENT_SEALING;
	client_send_away(client, client_seal);
}

static void client_sealed(struct client *client)
{
	struct dsec_ring_step go = { .magic = DSEC_RING_MAGIC, .step = 2 };

	if (client->result < 0)
		log_error("client memory seal failed err=%s", strerror(-client->result));
	if (client->result < 0 ||
	    send(client->fd, &go, sizeof go, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof go)
		client_end(client);
	else
		client_start(client);
}

static void client_worked(struct mail *mail, void *owner)
{
	struct client *client = container_of(mail, struct client, mail);

	(void)owner; /* its home shard */
	client->is_away = false;
	if (client->state == CLIENT_CLOSING)
		client_try_free(client);
	else if (client->state == CLIENT_GREETED)
		client_welcomed(client);
	else
		client_sealed(client);
}

/* Each state waits for so many bytes at one place. */
static void *client_wanted(struct client *client, uint32_t *ret_bytes)
{
	switch (client->state) {
	case CLIENT_HELLO:
		*ret_bytes = sizeof client->hello;
		return &client->hello;
	case CLIENT_TOKEN:
		*ret_bytes = client->hello.token_bytes;
		return client->token;
	case CLIENT_MAPPED:
		*ret_bytes = sizeof client->step;
		return &client->step;
	case CLIENT_GREETED:
	case CLIENT_SEALING:
	case CLIENT_OPEN:
	case CLIENT_CLOSING:
		break;
	}
	*ret_bytes = 1;
	return &client->byte;
}

static void client_received(struct io_op *op, int res)
{
	struct client *client = container_of(op, struct client, receive);
	uint32_t wanted;
	char *at = client_wanted(client, &wanted);

	client->receiving = false;
	if (client->state == CLIENT_CLOSING) {
		client_try_free(client);
		return;
	}
	if (res <= 0) {
		client_end(client);
		return;
	}
	client->got += (uint32_t)res;
	if (client->state == CLIENT_OPEN) {
		client_receive(client, &client->byte, 1); /* says nothing; only its end counts */
		return;
	}
	if (client->got < wanted) {
		client_receive(client, at + client->got, wanted - client->got);
		return;
	}
	if (client->state == CLIENT_HELLO)
		client_got_hello(client);
	else if (client->state == CLIENT_TOKEN)
		client_greet(client);
	else
		client_got_mapped(client);
}

static void client_late(struct timer *timer)
{
	struct client *client = container_of(timer, struct client, deadline);
	struct shard *shard = client->shard;

	/* While the control thread is at it, it is we who are late. */
	if (client->is_away &&
	    timer_set(&shard->timers, timer, io_now_ns(shard->io) + HANDSHAKE_NS) >= 0)
		return;
	(void)shutdown(client->fd, SHUT_RDWR); /* its receive ends, and with it the client */
}

void client_open(struct shard *shard, int fd, uint32_t door, struct mail *place)
{
	struct client *client = shard->stopping ? NULL : calloc(1, sizeof *client);

	if (!client) {
		(void)close(fd); /* the client sees the end of the connection */
		control_client_gone(shard->node->control, shard, place);
		return;
	}
	client->place = place;
	client->door = door;
	client->shard = shard;
	client->fd = fd;
	client->memory.fd = -1;
	client->id = ++shard->client_sequence << 12 | shard->number;
	client->deadline.expired = client_late;
	shard->clients_live++;
	client->next = shard->clients;
	if (shard->clients)
		shard->clients->previous = client;
	shard->clients = client;
	(void)timer_set(&shard->timers, &client->deadline, io_now_ns(shard->io) + HANDSHAKE_NS);
	client_receive(client, &client->hello, sizeof client->hello);
}

void clients_close(struct shard *shard)
{
	struct client *next;

	for (struct client *client = shard->clients; client; client = next) {
		next = client->next;
		client_end(client);
	}
}
