/* refuse.h: a call that must be refused, with a message that names the parameter. */
#ifndef GANNET_TESTS_REFUSE_H
#define GANNET_TESTS_REFUSE_H

#include <ctype.h>
#include <string.h>

#include "ann.h"
#include "check.h"

/* Looks for `word` in a message without regard to case. */
__attribute__((unused)) static int mentions(const char *message, const char *word) {
  const size_t length = strlen(word);
  for (; *message; message++) {
    size_t i = 0;
    while (i < length && message[i] && tolower((unsigned char)message[i]) == tolower((unsigned char)word[i]))
      i++;
    if (i == length) return 1;
  }
  return 0;
}

/* `wanted` or `also` (the same, where the header leaves no choice). `words` is a list parted by
 * blanks: parameter, value, bounds; the message must hold each. */
__attribute__((unused)) static void refused_at(int line, const char *file, const char *call, ann_status got,
                                               ann_status wanted, ann_status also, const ann_error *error,
                                               const char *words) {
  check_at(got == wanted || got == also, file, line, "%s answers %s, wanted %s", call, ann_status_name(got),
           ann_status_name(wanted));
  if (got == ANN_OK) return;
  check_at(error->status == got, file, line, "%s: error.status is %s, the call answers %s", call,
           ann_status_name(error->status), ann_status_name(got));
  check_at(memchr(error->message, 0, sizeof error->message) != NULL && error->message[0] != 0 &&
               strchr(error->message, '\n') == NULL,
           file, line, "%s: the message is not one line of text", call);
  char list[200];
  strncpy(list, words, sizeof list - 1);
  list[sizeof list - 1] = 0;
  for (char *rest = list, *word; (word = strtok_r(rest, " ", &rest)) != NULL;)
    check_at(mentions(error->message, word), file, line, "%s: \"%s\" does not mention %s", call,
             error->message, word);
}

/* The call must take `&error`, declared here for it. */
#define REFUSED_OR(call, wanted, also, words)                                           \
  do {                                                                                  \
    ann_error error = ANN_ERROR_INIT;                                                   \
    const ann_status refused_status = (call);                                           \
    refused_at(__LINE__, __FILE__, #call, refused_status, wanted, also, &error, words); \
  } while (0)
#define REFUSED(call, wanted, words) REFUSED_OR(call, wanted, wanted, words)

#endif
