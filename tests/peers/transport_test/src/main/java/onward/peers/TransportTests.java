package onward.peers;

import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs {@link BrokeredTransportTest} and prints a line for each of its tests: SUCCESSFUL, FAILED or
 * SKIPPED, a tab, what it is called, and after another tab why it failed. The last line is "END".
 */
public final class TransportTests implements TestExecutionListener {

  private TransportTests() {}

  public static void main(String[] arguments) {
    LauncherDiscoveryRequest request =
        LauncherDiscoveryRequestBuilder.request()
            .selectors(DiscoverySelectors.selectClass(BrokeredTransportTest.class))
            .build();
    Launcher launcher = LauncherFactory.create();
    launcher.execute(request, new TransportTests());
    System.out.println("END");
    System.exit(0);
  }

  @Override
  public void executionSkipped(TestIdentifier test, String reason) {
    if (test.isTest()) {
      System.out.println("SKIPPED\t" + test.getDisplayName());
    }
  }

  @Override
  public void executionFinished(TestIdentifier test, TestExecutionResult result) {
    if (!test.isTest() && result.getThrowable().isEmpty()) {
      return;
    }
    String why = result.getThrowable().map(error -> "\t" + oneLine(error)).orElse("");
    System.out.println(result.getStatus() + "\t" + test.getDisplayName() + why);
  }

  private static String oneLine(Throwable error) {
    String text = error.toString().replaceAll("\\s+", " ");
    return text.length() > 500 ? text.substring(0, 500) : text;
  }
}
