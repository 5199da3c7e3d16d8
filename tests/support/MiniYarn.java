import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** YARN on this machine: `java MiniYarn.java NODES FILE NAME=VALUE...` writes its settings into the file when it is up. */
public class MiniYarn {
  public static void main(String[] words) throws Exception {
    YarnConfiguration conf = new YarnConfiguration();
    for (int i = 2; i < words.length; i++) {
      conf.set(words[i].substring(0, words[i].indexOf('=')), words[i].substring(words[i].indexOf('=') + 1));
    }
    MiniYARNCluster cluster = new MiniYARNCluster("delayline", Integer.parseInt(words[0]), 1, 1);
    cluster.init(conf);
    cluster.start();
    try (OutputStream out = new FileOutputStream(words[1])) {
      cluster.getConfig().writeXml(out);
    }
    System.in.read();
  }
}
