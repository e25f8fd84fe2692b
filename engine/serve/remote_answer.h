/*
 * What a server of HTTP says, for whoever asks it for ranges: the remote, on a shard, and
 * dsec-fetch. And how both ask: no redirects, no proxy, one protocol.
 */
#pragma once

#include <curl/curl.h>
#include <openssl/types.h>
#include <stdbool.h>
#include <stdint.h>

enum { ANSWER_ADDRESS_BYTES_MAX = 1024, ANSWER_HEAD_BYTES_MAX = 64 << 10 };

/* Neither 200 nor 206 nor 416: -ENOENT, -EACCES, -EBUSY; -EIO: anything else, redirects too. */
int answer_status_error(long status);
int answer_code_error(CURLcode code);
/*
 * Of a 206: it is what was asked for, and less only at the end of all there is. -EIO: it is not, or
 * does not say so.
 */
int answer_range(CURL *easy, uint64_t offset, uint64_t bytes, uint64_t *ret_promised,
		 uint64_t *ret_size);
/* Packed, which nobody asked for: its bytes are not those of the range that it says. */
bool answer_is_encoded(CURL *easy);

/* A handle to ask with. Both stay the caller's; authorities NULL: no TLS. -ENOMEM, -ENOTSUP. */
int answer_easy_new(struct curl_slist *headers, X509_STORE *authorities, CURL **ret);
/* What libssl loads on first use is loaded now. */
void answer_tls_prepare(void);
