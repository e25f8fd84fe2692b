/*
 * Asking a server and judging what it says. Called by the HTTP remote and by dsec-fetch. Must hold:
 * an answer counts only if it says that it is the range that was asked for; credentials go to one
 * server only, since no redirect is followed.
 */
#include "engine/serve/remote_answer.h"

#include <ctype.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <strings.h>

enum { BUFFER_BYTES = 128 << 10 };

int answer_status_error(long status)
{
	if (status == 404 || status == 410)
		return -ENOENT;
	if (status == 401 || status == 403 || status == 407)
		return -EACCES;
	if (status == 429 || status == 503)
		return -EBUSY;
	return -EIO; /* redirects too */
}

int answer_code_error(CURLcode code)
{
	switch (code) {
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return -EHOSTUNREACH;
	case CURLE_COULDNT_CONNECT:
		return -ECONNREFUSED;
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_GOT_NOTHING:
		return -ECONNRESET;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CIPHER:
		return -EKEYREJECTED;
	default:
		return -EIO;
	}
}

/* Digits and what follows them: -EINVAL. */
static int number_read(const char **at, char after, uint64_t *ret)
{
	char *end;

	if (!isdigit((unsigned char)**at))
		return -EINVAL;
	errno = 0;
	*ret = strtoull(*at, &end, 10);
	if (errno || *end != after)
		return -EINVAL;
	*at = end + (after ? 1 : 0);
	return 0;
}

/* "bytes FIRST-LAST/SIZE" */
int answer_range(CURL *easy, uint64_t offset, uint64_t bytes, uint64_t *ret_promised,
		 uint64_t *ret_size)
{
	struct curl_header *header;
	uint64_t first, last, size;
	const char *at;

	if (curl_easy_header(easy, "Content-Range", 0, CURLH_HEADER, -1, &header) ||
	    header->amount != 1 || strncasecmp(header->value, "bytes ", 6) != 0)
		return -EIO;
	at = header->value + 6;
	if (number_read(&at, '-', &first) < 0 || number_read(&at, '/', &last) < 0 ||
	    number_read(&at, 0, &size) < 0)
		return -EIO;
	if (first != offset || last < first || last >= size || last - first >= bytes ||
	    (last - first + 1 < bytes && last + 1 != size))
		return -EIO;
	*ret_promised = last - first + 1;
	*ret_size = size;
	return 0;
}

bool answer_is_encoded(CURL *easy)
{
	struct curl_header *header;
	CURLHcode none = curl_easy_header(easy, "Content-Encoding", 0, CURLH_HEADER, -1, &header);

	return none != CURLHE_MISSING && none != CURLHE_NOHEADERS &&
	       (none || header->amount != 1 || strcasecmp(header->value, "identity") != 0);
}

/* ---- asking ---- */

/* Certificates were read before: reading them takes tens of milliseconds. */
static CURLcode authorities_give(CURL *easy, void *context, void *owner)
{
	(void)easy;
	SSL_CTX_set1_cert_store(context, owner);
	return CURLE_OK;
}

int answer_easy_new(struct curl_slist *headers, X509_STORE *authorities, CURL **ret)
{
	CURL *easy = curl_easy_init();
	int failed = 0;

	if (!easy)
		return -ENOMEM;
#define SET(option, value) (failed |= curl_easy_setopt(easy, CURLOPT_##option, value) != CURLE_OK)
	SET(PROTOCOLS_STR, authorities ? "https" : "http");
	SET(PROXY, "");
	SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(FOLLOWLOCATION, 0L);
	SET(NOSIGNAL, 1L);
	SET(QUICK_EXIT, 1L); /* whoever looks up a name is not waited for */
	SET(TCP_KEEPALIVE, 1L);
	SET(BUFFERSIZE, (long)BUFFER_BYTES);
	SET(HTTPHEADER, headers);
	if (authorities) {
		SET(CAINFO, NULL);
		SET(CAPATH, NULL);
		SET(CA_CACHE_TIMEOUT, 0L);
		SET(SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
		SET(SSL_CTX_FUNCTION, authorities_give);
		SET(SSL_CTX_DATA, authorities);
	}
#undef SET
	if (failed) {
		curl_easy_cleanup(easy);
		return -ENOTSUP;
	}
	*ret = easy;
	return 0;
}

void answer_tls_prepare(void)
{
	SSL_CTX_free(SSL_CTX_new(TLS_client_method()));
}
