/*
 * The messages of route.h: one request, one acknowledgement, at once. Called by workers and by the
 * engine's control thread. Must hold: no libc state, no allocation.
 */
#include "backends/container/route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "backends/container/kernel.h"

enum { MESSAGE_BYTES = 512, ACKNOWLEDGEMENT_BYTES = 1024, LINK_BYTES = 8192 };

struct message {
	struct nlmsghdr header;
	union {
		struct ifinfomsg link;
		struct ifaddrmsg address;
		struct rtmsg route;
		struct ndmsg neighbour;
		char bytes[MESSAGE_BYTES];
	};
};

static void message_begin(struct message *m, uint16_t type, uint16_t flags, uint32_t bytes)
{
	memset(m, 0, sizeof *m);
	m->header.nlmsg_type = type;
	m->header.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
	m->header.nlmsg_len = NLMSG_LENGTH(bytes);
}

/* What there is room for: names and numbers of fixed size. */
static struct rtattr *attribute_add(struct message *m, uint16_t type, const void *bytes,
				    uint32_t count)
{
	struct rtattr *attribute = (struct rtattr *)((char *)m + NLMSG_ALIGN(m->header.nlmsg_len));

	attribute->rta_type = type;
	attribute->rta_len = (uint16_t)RTA_LENGTH(count);
	if (count)
		memcpy(RTA_DATA(attribute), bytes, count);
	m->header.nlmsg_len = NLMSG_ALIGN(m->header.nlmsg_len) + RTA_ALIGN(attribute->rta_len);
	return attribute;
}

static void nest_end(const struct message *m, struct rtattr *nest)
{
	nest->rta_len = (uint16_t)((const char *)m + m->header.nlmsg_len - (char *)nest);
}

static void name_add(struct message *m, const char *name)
{
	attribute_add(m, IFLA_IFNAME, name, (uint32_t)strlen(name) + 1);
}

static long message_send(int fd, const struct message *m)
{
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		char rest[ACKNOWLEDGEMENT_BYTES];
	} answer;
	long r = KERNEL_CALL(SYS_sendto, fd, (long)m, m->header.nlmsg_len, 0, 0, 0);

	if (r >= 0)
		r = KERNEL_CALL(SYS_recvfrom, fd, (long)&answer, sizeof answer, MSG_DONTWAIT, 0, 0);
	if (r < 0)
		return r;
	return answer.header.nlmsg_type == NLMSG_ERROR ? answer.error.error : -EPROTO;
}

static long index_of(int fd, const char *name)
{
	struct ifreq request = { .ifr_ifindex = 0 };
	long r;

	memcpy(request.ifr_name, name, strnlen(name, IFNAMSIZ - 1));
	r = KERNEL_CALL(SYS_ioctl, fd, SIOCGIFINDEX, (long)&request);
	return r < 0 ? r : request.ifr_ifindex;
}

long route_open(void)
{
	return KERNEL_CALL(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
}

struct route_prefix route_prefix4(uint32_t address, uint8_t bits)
{
	const uint32_t number = htonl(address);
	struct route_prefix prefix = { .family = AF_INET, .bits = bits };

	memcpy(prefix.address, &number, sizeof number);
	return prefix;
}

struct route_prefix route_prefix6(const uint8_t address[16], uint8_t bits)
{
	struct route_prefix prefix = { .family = AF_INET6, .bits = bits };

	memcpy(prefix.address, address, sizeof prefix.address);
	return prefix;
}

struct route_end route_end_of(const char *name, uint8_t which, uint32_t number)
{
	/* Locally administered. */
	struct route_end end = { .mac = { 0x02, which, (uint8_t)(number >> 24),
					  (uint8_t)(number >> 16), (uint8_t)(number >> 8),
					  (uint8_t)number } };

	memcpy(end.name, name, strnlen(name, sizeof end.name - 1));
	return end;
}

static uint32_t address_bytes(const struct route_prefix *prefix)
{
	return prefix->family == AF_INET ? 4 : 16;
}

long route_pair_make(int fd, const struct route_end *here, const struct route_end *there,
		     int there_ns_fd)
{
	const struct ifinfomsg none = { .ifi_family = AF_UNSPEC };
	struct rtattr *info, *data, *other;
	struct message m;

	message_begin(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof m.link);
	name_add(&m, here->name);
	attribute_add(&m, IFLA_ADDRESS, here->mac, sizeof here->mac);
	info = attribute_add(&m, IFLA_LINKINFO, NULL, 0);
	attribute_add(&m, IFLA_INFO_KIND, "veth", 4);
	data = attribute_add(&m, IFLA_INFO_DATA, NULL, 0);
	other = attribute_add(&m, VETH_INFO_PEER, &none, sizeof none);
	name_add(&m, there->name);
	attribute_add(&m, IFLA_ADDRESS, there->mac, sizeof there->mac);
	attribute_add(&m, IFLA_NET_NS_FD, &there_ns_fd, sizeof there_ns_fd);
	nest_end(&m, other);
	nest_end(&m, data);
	nest_end(&m, info);
	return message_send(fd, &m);
}

long route_link_up(int fd, const char *name)
{
	struct message m;

	message_begin(&m, RTM_NEWLINK, 0, sizeof m.link);
	m.link.ifi_flags = m.link.ifi_change = IFF_UP;
	name_add(&m, name);
	return message_send(fd, &m);
}

/* The attribute of a link's description; NULL: it has none. */
static const struct rtattr *attribute_find(const struct nlmsghdr *header, uint16_t type)
{
	const char *at = (const char *)header + NLMSG_SPACE(sizeof(struct ifinfomsg));
	const char *end = (const char *)header + header->nlmsg_len;

	while (end - at >= (ptrdiff_t)sizeof(struct rtattr)) {
		const struct rtattr *attribute = (const struct rtattr *)at;

		if (attribute->rta_len < sizeof *attribute || attribute->rta_len > end - at)
			return NULL;
		if (attribute->rta_type == type)
			return attribute;
		at += RTA_ALIGN(attribute->rta_len);
	}
	return NULL;
}

long route_link_count(int fd, const char *name, uint64_t *ret_received, uint64_t *ret_sent)
{
	union {
		struct nlmsghdr header;
		char bytes[LINK_BYTES];
	} answer;
	const struct rtattr *found;
	struct rtnl_link_stats64 count;
	struct message m;
	long r;

	message_begin(&m, RTM_GETLINK, 0, sizeof m.link);
	m.header.nlmsg_flags = NLM_F_REQUEST; /* the answer is enough */
	name_add(&m, name);
	r = KERNEL_CALL(SYS_sendto, fd, (long)&m, m.header.nlmsg_len, 0, 0, 0);
	if (r >= 0)
		r = KERNEL_CALL(SYS_recvfrom, fd, (long)&answer, sizeof answer, MSG_DONTWAIT, 0, 0);
	if (r < 0)
		return r;
	if (answer.header.nlmsg_type != RTM_NEWLINK || answer.header.nlmsg_len > (uint64_t)r)
		return -EPROTO;
	found = attribute_find(&answer.header, IFLA_STATS64);
	if (!found || RTA_PAYLOAD(found) < sizeof count)
		return -EPROTO;
	memcpy(&count, RTA_DATA(found), sizeof count);
	*ret_received = count.rx_bytes;
	*ret_sent = count.tx_bytes;
	return 0;
}

long route_link_delete(int fd, const char *name)
{
	struct message m;

	message_begin(&m, RTM_DELLINK, 0, sizeof m.link);
	name_add(&m, name);
	return message_send(fd, &m);
}

long route_address_add(int fd, const char *name, const struct route_prefix *own)
{
	const uint32_t flags = IFA_F_NODAD; /* nobody else is on the link: it is there at once */
	long index = index_of(fd, name);
	struct message m;

	if (index < 0)
		return index;
	message_begin(&m, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof m.address);
	m.address.ifa_family = (unsigned char)own->family;
	m.address.ifa_prefixlen = own->bits;
	m.address.ifa_index = (uint32_t)index;
	attribute_add(&m, IFA_LOCAL, own->address, address_bytes(own));
	attribute_add(&m, IFA_ADDRESS, own->address, address_bytes(own));
	if (own->family == AF_INET6)
		attribute_add(&m, IFA_FLAGS, &flags, sizeof flags);
	return message_send(fd, &m);
}

long route_neighbour_add(int fd, const char *name, const struct route_prefix *who,
			 const uint8_t mac[ROUTE_MAC_BYTES])
{
	long index = index_of(fd, name);
	struct message m;

	if (index < 0)
		return index;
	message_begin(&m, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_EXCL, sizeof m.neighbour);
	m.neighbour.ndm_family = (unsigned char)who->family;
	m.neighbour.ndm_ifindex = (int)index;
	m.neighbour.ndm_state = NUD_PERMANENT;
	attribute_add(&m, NDA_DST, who->address, address_bytes(who));
	attribute_add(&m, NDA_LLADDR, mac, ROUTE_MAC_BYTES);
	return message_send(fd, &m);
}

static void route_begin(struct message *m, const struct route_prefix *to)
{
	message_begin(m, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof m->route);
	m->route.rtm_family = (unsigned char)to->family;
	m->route.rtm_protocol = RTPROT_STATIC;
	m->route.rtm_dst_len = to->bits;
	if (to->bits) /* else everywhere */
		attribute_add(m, RTA_DST, to->address, address_bytes(to));
}

long route_via_add(int fd, const struct route_prefix *to, const struct route_prefix *gateway)
{
	struct message m;

	route_begin(&m, to);
	m.route.rtm_table = RT_TABLE_MAIN;
	m.route.rtm_scope = RT_SCOPE_UNIVERSE;
	m.route.rtm_type = RTN_UNICAST;
	attribute_add(&m, RTA_GATEWAY, gateway->address, address_bytes(gateway));
	return message_send(fd, &m);
}

long route_local_add(int fd, const char *name, const struct route_prefix *own)
{
	long index = index_of(fd, name);
	struct message m;
	uint32_t link;

	if (index < 0)
		return index;
	link = (uint32_t)index;
	route_begin(&m, own);
	m.route.rtm_table = RT_TABLE_LOCAL;
	m.route.rtm_scope = RT_SCOPE_HOST;
	m.route.rtm_type = RTN_LOCAL;
	attribute_add(&m, RTA_OIF, &link, sizeof link);
	return message_send(fd, &m);
}
