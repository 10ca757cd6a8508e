package onward.peers;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Consumer;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

/** Lines of JSON: objects on standard input and output, one a line. */
final class Lines {

  private static final ObjectMapper MAPPER = new ObjectMapper();

  private Lines() {}

  /** Print an object of these names and values, in turn; from any thread. */
  static void report(Object... namesAndValues) {
    Map<String, Object> line = new LinkedHashMap<>();
    for (int at = 0; at < namesAndValues.length; at += 2) {
      line.put((String) namesAndValues[at], namesAndValues[at + 1]);
    }
    try {
      String text = MAPPER.writeValueAsString(line);
      synchronized (Lines.class) {
        System.out.println(text);
        System.out.flush();
      }
    } catch (JsonProcessingException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Give each line of standard input to a function, until there are no more. */
  static void read(Consumer<JsonNode> take) throws IOException {
    var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      take.accept(MAPPER.readTree(line));
    }
  }
}
