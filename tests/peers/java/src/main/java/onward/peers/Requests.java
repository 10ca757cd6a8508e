package onward.peers;

import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

import com.fasterxml.jackson.databind.JsonNode;
import io.rsocket.Payload;
import io.rsocket.RSocketErrorException;
import io.rsocket.broker.client.BrokerRSocketClient;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * The interactions of a requester.
 *
 * <pre>
 * request_response TEXT     one request, one answer
 * fire_and_forget  TEXT     one request, no answer
 * metadata_push    TEXT     the text is the name of the route, as a push has no data
 * request_stream   COUNT    a stream of COUNT elements; credit is granted five at a time
 * first_of_stream  COUNT    COUNT elements of a stream without end, which is then cancelled
 * request_channel  A,B,C    the elements A, B and C, each answered by one
 * </pre>
 */
final class Requests {

  private static final String ROUTE = "echo";
  private static final int CREDIT = 5;

  private Requests() {}

  static void start(int id, Connection connection, JsonNode command) {
    Flux<Payload> answers = send(connection, command);
    List<String> elements = new CopyOnWriteArrayList<>();
    answers
        .map(Payload::getDataUtf8)
        .subscribe(
            elements::add, error -> failed(id, elements, error), () -> completed(id, elements));
  }

  private static Flux<Payload> send(Connection connection, JsonNode command) {
    BrokerRSocketClient client = connection.client();
    String argument = command.get("argument").asText();
    Mono<Payload> request = Mono.fromSupplier(() -> connection.payload(command, ROUTE, argument));
    return switch (command.get("interaction").asText()) {
      case "request_response" -> client.requestResponse(request).flux();
      case "fire_and_forget" -> client.fireAndForget(request).thenMany(Flux.empty());
      case "metadata_push" ->
          client
              .metadataPush(Mono.fromSupplier(() -> connection.payload(command, argument, "")))
              .thenMany(Flux.empty());
      case "request_stream" -> client.requestStream(request).limitRate(CREDIT);
      case "first_of_stream" ->
          client
              .requestStream(Mono.fromSupplier(() -> connection.payload(command, ROUTE, "endless")))
              .limitRate(CREDIT)
              .take(Long.parseLong(argument));
      case "request_channel" ->
          client
              .requestChannel(
                  Flux.fromIterable(Arrays.asList(argument.split(",")))
                      .map(text -> connection.payload(command, ROUTE, text)))
              .limitRate(CREDIT);
      default -> throw new IllegalArgumentException("no such interaction: " + command);
    };
  }

  private static void completed(int id, List<String> elements) {
    Lines.report("id", id, "elements", elements, "outcome", "completed");
  }

  /** Report that a request or another command came to nothing. */
  static void failed(int id, Throwable error) {
    failed(id, List.of(), error);
  }

  private static void failed(int id, List<String> elements, Throwable error) {
    Integer code = error instanceof RSocketErrorException known ? known.errorCode() : null;
    Lines.report(
        "id", id, "elements", elements, "outcome", "failed",
        "code", code, "message", error.getMessage());
  }
}
